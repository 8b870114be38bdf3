"""Dynamo with its file store, as its wheels bring it: bindings in one environment, frontend in one.

A store here is a directory of our own, put together from the files that a real worker of Dynamo's
wrote: those of further workers are its with another number. Dynamo removes what was not touched
for ten seconds; files of workers that nobody runs are therefore dated a day ahead.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers import children
from tests.bench.peers.asked import Asked

SIDE = Path(__file__).with_name("dynamo_side.py")
DEADLINE_SECONDS = 60.0
AHEAD_SECONDS = 86_400
FIRST_NUMBER = 0x1000
"""Of the instances that nobody runs; real ones have random numbers of 63 bits."""

RUNTIME, FRONTEND = "dynamo-runtime", "dynamo-frontend"
"""Their environments' names in the directory of peers."""


class Dynamo:
    """A store in `place`, and the programs of Dynamo's that work on it."""

    def __init__(self, peers: Path, place: Path) -> None:
        self._peers = peers
        self._place = place
        self._model = place / "model"
        _write_model(self._model)
        self.cards = place / "store" / "v1" / "mdc"
        self.instances = place / "store" / "v1" / "instances"
        for directory in (self.cards, self.instances, place / "home"):
            directory.mkdir(parents=True)

    @contextlib.contextmanager
    def registrar(self, name: str) -> Iterator[Callable[[], float]]:
        """Give what registers one more worker of a model, and takes it back: seconds of the first.

        It is `register_model` as the worker itself sees it, which returns when it was admitted.
        """
        log = self._place / "registrar.log"
        with self._side(log, "register", str(self._model), name) as process:
            children.line(process, log)

            def register() -> float:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                return float(children.line(process, log))

            yield register

    @contextlib.contextmanager
    def worker(self, name: str, component: str = "backend") -> Iterator[Callable[[], None]]:
        """Run a worker that serves a model under a name; give what kills it."""
        log = self._place / f"{name}.log"
        with self._side(log, "serve", str(self._model), name, component) as process:
            children.line(process, log)
            children.until(lambda: self._has(component), process, log)
            yield process.kill

    def until_seen(self, count: int) -> float:
        """Start a fresh process; return the seconds until its client sees so many instances."""
        log = self._place / "see.log"
        began = time.perf_counter()
        with self._side(log, "see", str(count)) as process:
            children.line(process, log)
            return time.perf_counter() - began

    def fill(self, name: str, count: int) -> None:
        """Put so many workers of one model on one endpoint, cards and instances, as files."""
        with self.worker(name):
            card, instance = _only(self.cards), _only(self.instances)
        for number in range(FIRST_NUMBER, FIRST_NUMBER + count):
            self._put(self.cards, card | {"instance_id": number})
            self._put(self.instances, instance | {"instance_id": number})

    def spare(self, number: int) -> None:
        """Put the instance of a worker, on an endpoint of its own, beside the one that runs."""
        self._put(self.instances, _any(self.instances) | {"component": f"spare{number}"})

    def card(self, name: str, number: int) -> Callable[[], None]:
        """Return what puts the card of such a worker under a name, by one rename."""
        card = _any(self.cards) | {"component": f"spare{number}"}
        card["card_json"] |= {"display_name": name, "slug": name}
        return self._ready(self.cards, card)

    def withdraw(self, number: int) -> None:
        """Take that card away again."""
        for path in self.cards.glob(f"*%2Fspare{number}%2F*"):
            path.unlink()

    @contextlib.contextmanager
    def frontend(self) -> Iterator["Frontend"]:
        """Run the frontend meanwhile."""
        log, port = self._place / "frontend.log", children.free_port()
        command = [self._python(FRONTEND), "-m", "dynamo.frontend", "--discovery-backend", "file"]
        command += ["--http-host", "127.0.0.1", "--http-port", str(port)]
        with (
            children.child(command, log, environment=self._environment()) as process,
            contextlib.closing(Asked(port)) as asked,
        ):
            frontend = Frontend(asked)
            children.until(lambda: not frontend.names(), process, log)
            yield frontend

    def _has(self, component: str) -> bool:
        """Say whether a worker's card and instance are both there."""
        directories = (self.cards, self.instances)
        return all(any(each.glob(f"*%2F{component}%2F*")) for each in directories)

    def _put(self, directory: Path, members: dict[str, Any]) -> None:
        self._ready(directory, members)()

    def _ready(self, directory: Path, members: dict[str, Any]) -> Callable[[], None]:
        where = [members[which] for which in ("namespace", "component", "endpoint")]
        beside = directory.parent / "beside"
        beside.write_text(json.dumps(members))
        ahead = time.time() + AHEAD_SECONDS
        os.utime(beside, (ahead, ahead))
        target = directory / "%2F".join([*where, f"{members['instance_id']:x}"])

        def put() -> None:
            beside.replace(target)

        return put

    def _side(
        self, log: Path, *arguments: str
    ) -> contextlib.AbstractContextManager[children.Child]:
        command = [self._python(RUNTIME), "-I", str(SIDE), *arguments]
        return children.child(command, log, environment=self._environment())

    def _python(self, environment: str) -> str:
        return str(python(self._peers, environment))

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("DYN_")}
        return ours | {
            "HOME": str(self._place / "home"),
            "DYN_FILE_KV": str(self._place / "store"),
            "DYN_EVENT_PLANE": "zmq",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_LOG": "error",
        }


class Frontend:
    """A running frontend, asked over one connection."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def names(self) -> set[str]:
        """Return what it lists."""
        return {model["id"] for model in self._asked.ask("GET", "/v1/models")["data"]}

    def until(self, name: str, *, listed: bool) -> float:
        """Return the seconds until a name is listed, or is not."""
        began = time.perf_counter()
        while (name in self.names()) is not listed:
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise children.Missing(f"Dynamo's frontend never came to list {name} so: {listed}")
        return time.perf_counter() - began


def python(peers: Path, environment: str) -> Path:
    """Return an environment's Python; raise Missing where the environment is not."""
    found = peers / environment / "bin" / "python"
    if not found.exists():
        raise children.Missing("Dynamo is not installed: python -m tests.bench --install-peers")
    return found


def version(peers: Path) -> str | None:
    """Return which version of the bindings is installed, if any is."""
    wheels = (peers / RUNTIME).glob("lib/python*/site-packages/ai_dynamo_runtime-*.dist-info")
    return next((wheel.name.split("-")[1].removesuffix(".dist") for wheel in wheels), None)


def _write_model(model: Path) -> None:
    """Write the least that Dynamo takes for a model: four small files."""
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "vocab_size": 4,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, "word": 3}
    absent = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    tokenizer = dict.fromkeys(absent) | {
        "version": "1.0",
        "added_tokens": [
            flags | {"id": vocabulary[token], "content": token, "special": True}
            for token in special.values()
        ],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    files: dict[str, dict[str, Any]] = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": special
        | {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template},
    }
    model.mkdir(parents=True)
    for file, members in files.items():
        (model / file).write_text(json.dumps(members))


def _any(directory: Path) -> dict[str, Any]:
    return dict(json.loads(next(directory.iterdir()).read_text()))


def _only(directory: Path) -> dict[str, Any]:
    """Take the one file of a directory away; return what it says."""
    members = _any(directory)
    for path in directory.iterdir():
        path.unlink()
    return members
