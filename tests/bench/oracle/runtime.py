"""The real runtime, asked for verdicts: a process in Dynamo's environment, and its protocol.

It is started where it is needed, and again where it hangs or has gone; nothing is remembered there
between two cases.
"""

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.bench.oracle.cases import REAL_SOURCES, WORKERS, Lies, Step, filled

DRIVER = Path(__file__).with_name("driver.py")
ANSWER_SECONDS = 30.0
_CASES_A_PROCESS = 20_000

_REFUSALS = ("Cannot register model", "failed to deserialize model display_name")
_IN_PLACE = ("model update can", "model card is missing runtime_config")
"""What Dynamo says of a newcomer under a key that is taken; it compares more than the rules."""


class Verdict(msgspec.Struct, frozen=True):
    """What registering came to. `text` is Dynamo's, empty where it accepted."""

    text: str

    @property
    def accepted(self) -> bool:
        """Whether the card is registered."""
        return not self.text

    @property
    def said(self) -> str:
        """The verdict in a word: accept or reject; else the error, which is none."""
        if self.accepted:
            return "accept"
        if any(refusal in self.text for refusal in (*_REFUSALS, *_IN_PLACE)):
            return "reject"
        return f"failed: {self.text}"


class Played(msgspec.Struct, frozen=True):
    """A case as it was played: a verdict for every step that registers; the files at its end."""

    verdicts: tuple[Verdict | None, ...]
    written: dict[str, str]
    instances: list[int]


class RuntimeHangs(Exception):
    """The runtime has not answered in time, twice in a row."""


class Runtime:
    """The real Dynamo runtime of the environment whose Python is given, as a context."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._root = Path(tempfile.mkdtemp(prefix="dd-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._played = 0
        self.instances: list[int] = []
        models = self._root / "models"
        for source in REAL_SOURCES:
            lay_model(models / source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._root)

    def play(self, steps: Sequence[Step]) -> Played:
        """Play a case. Raises RuntimeHangs."""
        for _ in range(2):
            if self._process is None or self._played >= _CASES_A_PROCESS:
                self.stop()
                self._start()
            asked = [self._asked(step) for step in steps]
            answer = self._exchange(json.dumps(asked).encode() + b"\n")
            if answer is not None:
                self._played += 1
                verdicts = [None if text is None else Verdict(text) for text in answer["verdicts"]]
                return Played(tuple(verdicts), answer["written"], self.instances)
            self.stop()
        raise RuntimeHangs(f"no answer within {ANSWER_SECONDS} s to {steps!r}")

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        store = Path(tempfile.mkdtemp(dir=self._root))
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, DRIVER],
                cwd=self._root / "models",
                env=environment(self._root, store),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._played = 0
        instances = self._exchange(b"")
        if instances is None:
            log_text = (self._root / "log").read_text(errors="replace")
            raise RuntimeError(f"Dynamo's runtime does not start:\n{log_text[-2000:]}")
        assert len(instances) == WORKERS
        self.instances = instances

    def _asked(self, step: Step) -> dict[str, Any]:
        if isinstance(step, Lies):
            return {
                "type": "Lies",
                "file": filled(step.file, self.instances, "x"),
                "text": filled(step.text, self.instances, "d"),
            }
        asked: dict[str, Any] = msgspec.to_builtins(step)
        return asked

    def _exchange(self, line: bytes) -> Any:
        """Send a line; return what comes back, or None where nothing does in time."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        whole = b""
        while not whole.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], ANSWER_SECONDS)
            piece = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not piece:
                return None
            whole += piece
        return json.loads(whole)


def environment(home: Path, store: Path) -> dict[str, str]:
    """Return the environment of a Dynamo process: loopback only, nothing written elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DYN_", "PYTHON", "VIRTUAL_ENV", "DISCOVERYD_"))
    }
    return kept | {
        "HOME": str(home),
        "DYN_FILE_KV": str(store),
        "DYN_EVENT_PLANE": "zmq",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_LOG": "error",
        "HF_HUB_OFFLINE": "1",
    }


def lay_model(directory: Path) -> None:
    """Make a model directory of the least that Dynamo reads, unless it is there."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, content in _MODEL.items():
        (directory / file).write_text(json.dumps(content))


_MODEL: dict[str, dict[str, Any]] = {
    "config.json": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": 4096,
        "vocab_size": 4,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "bos_token_id": 0,
        "eos_token_id": 1,
    },
    "tokenizer.json": {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3},
            "unk_token": "<unk>",
        },
    },
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{{ messages }}",
    },
    "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
}
