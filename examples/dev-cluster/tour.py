"""The tour of the dev cluster: questions to the router, and what their answers have to be."""

# ruff: noqa: INP001  # no package: cluster.py finds it beside itself

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from openai import APIError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

if TYPE_CHECKING:
    from cluster import Cluster

ANSWERED_BY = {
    "llama": {"llama-1", "llama-2"},
    "chat": {"llama-1", "llama-2"},
    "llama-legal": {"llama-2"},
    "support-bot": {"support"},
    "qwen": {"qwen"},
}
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hello"}]
SHORT, USUAL, LONG = 3, 8, 40
"""Words of an answer; the long one leaves time for something to happen meanwhile."""


def say(what: str) -> None:
    """Tell whoever takes the tour."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


class Guest:
    """Somebody with OpenAI's client, who asks the router, and nothing twice."""

    def __init__(self, cluster: "Cluster") -> None:
        self._client = OpenAI(base_url=cluster.url, api_key="none", max_retries=0)
        self._workers = {str(port): worker for worker, port in cluster.ports.items()}

    def names(self) -> set[str]:
        """Return the names that the router lists."""
        return {model.id for model in self._client.models.list()}

    def ask(self, name: str, words: int = SHORT) -> str:
        """Return which worker answers."""
        answer = self._client.chat.completions.create(model=name, messages=HELLO, max_tokens=words)
        return self._workers[answer.system_fingerprint or ""]

    def stream(self, name: str, words: int = LONG) -> Iterator[str]:
        """Yield which worker answers, with each word of its answer and at the end."""
        answer = self._client.chat.completions.create(
            model=name, messages=HELLO, stream=True, max_tokens=words
        )
        for chunk in answer:
            yield self._workers[chunk.system_fingerprint or ""]


class Tour:
    """What was seen that should not have been is in `failures`."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._guest = Guest(cluster)
        self.failures: list[str] = []

    def take(self) -> None:
        """See it all. Raises KeyboardInterrupt."""
        self._cluster.ctl("list")
        self._names()
        self._impostor()
        with self._others():
            for part in (self._kill, self._return, self._drain):
                self._cluster.interrupt.check()
                part()
        self._cluster.interrupt.check()

    def _names(self) -> None:
        say("\nEvery name reaches its own workers:")
        self._expect(self._guest.names() == set(ANSWERED_BY), "the router lists all names")
        for name, workers in ANSWERED_BY.items():
            asked = self._guest.ask(name)
            streamed = set(self._guest.stream(name, 4))
            say(f"  {name}: {asked}; as a stream: {', '.join(streamed)}")
            self._expect({asked} | streamed <= workers, f"{name} reaches its own workers")

    def _impostor(self) -> None:
        say("\nA card that is refused, and what somebody hears who asks for its name:")
        served = self._cluster.publish("impostor", 9, aliases=["chat"])
        self._expect(not served, "the impostor is refused")
        try:
            self._guest.ask("impostor")
            self._expect(False, "nobody answers to impostor")
        except NotFoundError as miss:
            say(f"  {miss.message}")

    def _kill(self) -> None:
        say("\nStreams from three workers, one of which is killed:")
        streams = [*self._streams_of("chat"), *self._streams_of("support-bot")]
        self._cluster.kill("llama-1")
        for worker, stream in streams:
            whole = self._is_whole(worker, stream)
            self._expect(whole == (worker != "llama-1"), "only the killed worker's stream breaks")
        self._expect_answers("chat", {"llama-2"})

    def _return(self) -> None:
        say("\nIt comes back:")
        self._cluster.start_worker("llama-1")
        self._cluster.wait("llama", "--workers", "2")
        self._expect_answers("chat", ANSWERED_BY["chat"])

    def _drain(self) -> None:
        say("\nThe other one is drained, with a stream on it:")
        streams = self._streams_of("chat")
        self._cluster.ctl("drain", self._cluster.key("llama-2"))
        self._expect_answers("chat", {"llama-1"})
        for worker, stream in streams:
            self._expect(self._is_whole(worker, stream), "what it has begun is finished")
        self._cluster.ctl("undrain", self._cluster.key("llama-2"))

    def _streams_of(self, name: str) -> list[tuple[str, Iterator[str]]]:
        """Return streams of a name that have begun, at least one from each of its workers."""
        begun: list[tuple[str, Iterator[str]]] = []
        while {worker for worker, _ in begun} != ANSWERED_BY[name]:
            stream = self._guest.stream(name)
            begun.append((next(stream), stream))
        return begun

    def _expect_answers(self, name: str, workers: set[str]) -> None:
        answering = {self._guest.ask(name) for _ in range(16)}
        say(f"  {name} is answered by {' and '.join(sorted(answering))}")
        self._expect(answering == workers, f"{name} is answered by {' and '.join(workers)}")

    def _is_whole(self, worker: str, stream: Iterator[str]) -> bool:
        """Read a stream to its end; return whether it was whole."""
        try:
            words = 1 + sum(1 for _ in stream)
        except APIError as broken:
            say(f"  {worker}: the stream breaks: {broken.message}")
            return False
        say(f"  {worker}: {words} pieces")
        return True

    @contextmanager
    def _others(self) -> Iterator[None]:
        """Let others ask for every name meanwhile; nobody of them may notice anything."""
        ended = threading.Event()
        counts = Counter[str]()

        def keep_asking(name: str) -> None:
            guest = Guest(self._cluster)
            while not ended.is_set():
                try:
                    guest.ask(name, USUAL)
                    counts[name] += 1
                except APIError as fault:
                    self._expect(False, f"{name} is answered: {fault.message}")

        names = [name for name in ANSWERED_BY if name != "llama-legal"]
        threads = [threading.Thread(target=keep_asking, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        say(f"\nMeanwhile others were answered {counts.total()} times.")

    def _expect(self, so: bool, what: str) -> None:
        if not so:
            say(f"  NOT SO: {what}")
            self.failures.append(what)
