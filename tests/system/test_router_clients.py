"""OpenAI's own client, unchanged, through examples/router.py; and the dev cluster as a whole."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from openai import APIError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.system.dropping import Host, Json
from tests.system.routing import EXAMPLES, Router, StandIn, Workers, routing
from tests.system.running import environment, until

NAMES = ("llama", "chat", "legal")
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hello"}]


class Failure(NamedTuple):
    name: str
    stream: bool
    worker: str | None
    why: str


def client_of(router: Router) -> OpenAI:
    return OpenAI(base_url=router.url, api_key="none", max_retries=0)


class Load:
    """Clients who ask for names, streaming and not, and never twice for one answer."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._ended = threading.Event()
        self.answers: list[tuple[str, str | None]] = []
        self.failures: list[Failure] = []

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Let them ask; at the end all have their answers."""
        ways = [(name, stream) for name in NAMES for stream in (True, False)]
        with ThreadPoolExecutor(len(ways)) as threads:
            begun = [threads.submit(self._ask, *way) for way in ways]
            try:
                yield
            finally:
                self._ended.set()
            for each in begun:
                each.result()

    def wait_answers_from(self, worker: StandIn) -> None:
        """Return when the worker has answered a few times more."""
        wanted = self.answers_from(worker) + 5
        until(lambda: self.answers_from(worker) >= wanted, f"it answers: {self.failures}", 30)

    def answers_from(self, worker: StandIn) -> int:
        return sum(answering == str(worker.port) for _, answering in tuple(self.answers))

    def _ask(self, name: str, stream: bool) -> None:
        with client_of(self._router) as client:
            create = client.chat.completions.create
            while not self._ended.is_set():
                worker = None
                try:
                    if stream:
                        for chunk in create(model=name, messages=HELLO, stream=True):
                            worker = chunk.system_fingerprint
                    else:
                        worker = create(model=name, messages=HELLO).system_fingerprint
                    self.answers.append((name, worker))
                except APIError as fault:
                    self.failures.append(Failure(name, stream, worker, repr(fault)))


@pytest.fixture
def router(host: Host, tmp_path: Path) -> Iterator[Router]:
    with routing(host.daemon.socket, tmp_path / "log") as found:
        yield found


def card(worker: StandIn, **members: Any) -> Json:
    """Return the card of a worker, which counts for as long as its process lives."""
    alive = {"pid": worker.process.pid}
    llama = {"display_name": "llama", "aliases": ["chat"], "source_path": "/m"}
    return llama | {"url": worker.url, "liveness": alive} | members


@pytest.mark.timeout(180)
def test_nothing_fails_while_workers_come_drain_die_and_are_edited_but_what_a_killed_one_had_begun(
    host: Host, router: Router
) -> None:
    workers = Workers(host, router)
    load = Load(router)
    with contextlib.ExitStack() as ends:

        def start(port: int | None = None) -> StandIn:
            worker = StandIn(*NAMES, port=port)
            ends.callback(worker.kill)
            return worker.wait_listening()

        def put(name: str, worker: StandIn, **members: Any) -> None:
            verdict = host.put(name, card(worker, **members))
            assert verdict.standing == "serving", verdict

        one, two = start(), start()
        put("one", one)
        put("legal", one, display_name="legal", aliases=[], lora={"name": "legal"})
        workers.settle()
        with load.asking():
            load.wait_answers_from(one)
            put("two", two)
            load.wait_answers_from(two)
            put("one", one, accepting=False)
            load.wait_answers_from(two)
            for count in range(10):
                put("one", one, labels={"edit": str(count)})
            load.wait_answers_from(one)
            assert host.put("one", b'{"display_name": "lla').standing == "invalid"
            load.wait_answers_from(one)
            assert host.put("one", card(one, context_length=8192)).standing == "standby"
            load.wait_answers_from(one)
            put("one", one)
            two.kill()
            load.wait_answers_from(one)
            put("two", start(two.port))
            load.wait_answers_from(two)
    killed = {None, str(two.port)}
    assert all(failure.stream and failure.worker in killed for failure in load.failures), (
        load.failures
    )
    assert len(load.failures) <= len(NAMES)
    assert {name for name, _ in load.answers} == set(NAMES)
    assert {worker for name, worker in load.answers if name == "legal"} == {str(one.port)}


def test_the_client_lists_the_names_and_hears_why_one_is_not_there(
    host: Host, router: Router
) -> None:
    host.put("one", {"display_name": "llama", "aliases": ["org/chat"], "url": "http://127.0.0.1:9"})
    Workers(host, router).settle()
    with client_of(router) as client:
        assert {model.id for model in client.models.list()} >= {"llama", "org/chat"}
        assert client.models.retrieve("org/chat").id == "org/chat"
        with pytest.raises(NotFoundError, match=r"nobody serves Chat\. did you mean org/chat\?"):
            client.models.retrieve("Chat")
        with pytest.raises(NotFoundError) as found:
            client.chat.completions.create(model="other", messages=HELLO)
        assert (found.value.code, found.value.type) == ("model_not_found", "invalid_request_error")


@pytest.mark.timeout(300)
def test_the_dev_cluster_starts_and_its_tour_meets_no_surprise() -> None:
    program = [sys.executable, str(EXAMPLES / "dev-cluster/cluster.py")]
    done = subprocess.run(
        program, env=environment(), capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SO" not in done.stdout
    assert "  llama-1: the stream breaks: " in done.stdout
    assert "  chat is answered by llama-1 and llama-2\n" in done.stdout


@pytest.mark.timeout(180)
def test_the_dev_cluster_ends_when_it_is_interrupted_and_takes_everything_along(
    tmp_path: Path,
) -> None:
    program = [sys.executable, str(EXAMPLES / "dev-cluster/cluster.py")]
    said = tmp_path / "said"
    with said.open("wb") as output:
        running = subprocess.Popen(
            program, env=environment(TMPDIR=str(tmp_path)), stdout=output, stderr=output
        )
    until(lambda: "Every name reaches" in said.read_text(), "the tour has begun", 60)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 128 + signal.SIGINT
    assert "NOT SO" not in said.read_text()
    assert list(tmp_path.iterdir()) == [said]


LOSE_ONE = """
import os, signal, weakref
from interrupt import Interrupt

class Forgotten: pass

def interrupt_me(_): os.kill(os.getpid(), signal.SIGINT)

interrupt, forgotten = Interrupt(), Forgotten()
interrupt.hear()
interrupt.check()
callback = weakref.ref(forgotten, interrupt_me)
del forgotten
print("lost")
try:
    with interrupt.held():
        interrupt.check()
        print("held")
    interrupt.check()
except KeyboardInterrupt:
    print("found again")
"""


def test_an_interrupt_that_python_loses_is_found_again_where_it_harms_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOSE_ONE],
        cwd=EXAMPLES / "dev-cluster",
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.stdout == "lost\nheld\nfound again\n"
    assert "Exception ignored in: <function interrupt_me" in done.stderr
