"""The mission: workers of one source serve different names on one endpoint, each by its own group.

Everything here goes through a daemon process, for flat cards (silent about their endpoint, and
naming it) and for a Dynamo store as two workers of release 1.6 lay it out.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.client import Client, NoSuchModel
from discoveryd.interface import Verdict, WatchReply
from tests.system.dropping import Host, Json
from tests.system.running import until

SOURCE = "/models/tiny"


class Workers:
    """Workers 1, 2 ... of one endpoint, who drop flat cards."""

    def __init__(self, host: Host, members: Json) -> None:
        self.host = host
        self._members = members

    def put(self, worker: int, name: str, **members: object) -> Verdict:
        """Drop the base card of a worker."""
        return self.host.put(f"worker-{worker}", self._card(worker, name, members))

    def put_adapter(self, worker: int, name: str, **members: object) -> Verdict:
        """Drop the card of an adapter on a worker."""
        card = self._card(worker, name, members) | {"lora": {"name": name}}
        return self.host.put(f"adapter-{worker}", card)

    def path(self, worker: int) -> Path:
        """Return where the worker's base card lies."""
        return self.host.cards / f"worker-{worker}.json"

    def _card(self, worker: int, name: str, members: Json) -> Json:
        url = f"http://127.0.0.1:{8000 + worker}"
        return {"display_name": name, "source_path": SOURCE, "url": url} | self._members | members


class DynamoWorkers(Workers):
    """The same, as processes of Dynamo 1.6 that share a file store."""

    def put(self, worker: int, name: str, **members: object) -> Verdict:
        return self.host.put_in_store(self._key(worker), self._envelope(worker, name, members))

    def put_adapter(self, worker: int, name: str, **members: object) -> Verdict:
        members["lora"] = {"name": name}
        body = self._envelope(worker, name, members) | {"model_suffix": name}
        return self.host.put_in_store(f"{self._key(worker)}/{name}", body)

    def path(self, worker: int) -> Path:
        return self.host.mdc / f"demo%2Fbackend%2Fgenerate%2F7c3ed918996b7ee{worker}"

    @staticmethod
    def _key(worker: int) -> str:
        return f"demo/backend/generate/7c3ed918996b7ee{worker}"

    @staticmethod
    def _envelope(worker: int, name: str, members: Json) -> Json:
        checksum = "blake3:66092275c62267b91b7ffc7dd29f9d77f061ec7bd3c19f87ca4e4d64a24a4f05"
        config = {"path": f"{SOURCE}/config.json", "checksum": checksum, "size": 318}
        card: Json = {
            "display_name": name,
            "slug": name,
            "source_path": SOURCE,
            "model_info": {"hf_config_json": config},
            "tokenizer": None,
            "architectural_max_context_length": 2048,
            "context_length": 2048,
            "kv_cache_block_size": 16,
            "migration_limit": 0,
            "model_type": "Chat | Completions",
            "model_input": "Tokens",
            "worker_type": "aggregated",
            "needs": [],
            "runtime_config": {"data_parallel_size": 1, "enable_local_indexer": True},
            "media_decoder": None,
            "media_fetcher": None,
        }
        return {
            "type": "Model",
            "namespace": "demo",
            "component": "backend",
            "endpoint": "generate",
            "instance_id": int(f"7c3ed918996b7ee{worker}", 16),
            "card_json": card | members,
        }


LAYOUTS: dict[str, Callable[[Host], Workers]] = {
    "flat": lambda host: Workers(host, {}),
    "flat-naming-the-endpoint": lambda host: Workers(host, {"component": "backend"}),
    "dynamo": lambda host: DynamoWorkers(host, {}),
}


@pytest.fixture(params=LAYOUTS)
def workers(request: pytest.FixtureRequest, host: Host) -> Workers:
    return LAYOUTS[request.param](host)


@pytest.fixture(params=["flat-naming-the-endpoint", "dynamo"])
def neighbours(request: pytest.FixtureRequest, host: Host) -> Workers:
    """Workers that share an endpoint whatever their sources."""
    return LAYOUTS[request.param](host)


class Observer:
    """Asks all the while, in threads of its own, who serves a name that should never go away."""

    def __init__(self, client: Callable[[], Client], name: str, key: str) -> None:
        self._open = client
        self._name = name
        self._key = key
        self._over = threading.Event()
        self._watching = threading.Event()
        self.asked = 0
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=loop) for loop in (self._ask, self._watch)]

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Observe meanwhile."""
        for thread in self._threads:
            thread.start()
        try:
            until(lambda: self.asked > 0 and self._watching.is_set(), "the observer has begun")
            yield
            asked = self.asked
            until(lambda: self.asked > asked + 1, "the observer has asked once more")
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _ask(self) -> None:
        with self._open() as client:
            while not self._over.is_set():
                try:
                    served = [worker.key for worker in client.resolve(self._name).workers]
                except NoSuchModel:
                    served = []
                if served != [self._key]:
                    self.faults.append(f"Resolve: {served}")
                if self._name not in [line.name for line in client.list().names]:
                    self.faults.append("List: not there")
                self.asked += 1

    def _watch(self) -> None:
        # Ends with the name "over", so that every change before it was told.
        with self._open() as client, contextlib.closing(client.watch()) as replies:
            for reply in replies:
                if not reply.heartbeat:
                    self._judge(reply)
                self._watching.set()
                if "over" in {line.name for line in reply.names}:
                    return
                if reply.heartbeat and self._over.is_set():
                    return  # the test has failed before its end

    def _judge(self, reply: WatchReply) -> None:
        if self._name in reply.gone or self._key in reply.removed:
            self.faults.append(f"Watch: {reply}")


def names_watched(host: Host) -> dict[str, int]:
    """Return what a new watcher is told first: names, and how many workers answer each."""
    with contextlib.closing(host.client.watch()) as replies:
        first = next(replies)
    assert first.reset
    assert not first.partial
    return {line.name: line.workers for line in first.names}


def unlink(path: Path) -> None:
    path.unlink()


def rename_out(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")


@pytest.mark.parametrize("leave", [unlink, rename_out], ids=["unlink", "rename-out"])
def test_two_names_of_one_source_come_and_go_apart(
    workers: Workers, leave: Callable[[Path], None]
) -> None:
    host = workers.host
    one = workers.put(1, "alias-a")
    two = workers.put(2, "alias-b")
    assert (one.standing, two.standing) == ("serving", "serving")
    assert one.key
    assert two.key
    assert one.key.rpartition("/")[0] == two.key.rpartition("/")[0]  # one endpoint
    both = {"alias-a": 1, "alias-b": 1}

    assert host.workers("alias-a") == [one.key]
    assert host.workers("alias-b") == [two.key]
    assert {line.name: line.workers for line in host.client.list().names} == both
    assert names_watched(host) == both

    observer = Observer(host.daemon.client, "alias-b", two.key)
    with (
        observer.observing(),
        contextlib.closing(host.client.watch(name="alias-a")) as watched,
    ):
        assert [worker.key for worker in next(watched).changed] == [one.key]

        leave(workers.path(1))
        gone = next(watched)
        assert (gone.gone, gone.removed, gone.changed) == (("alias-a",), (one.key,), ())
        with pytest.raises(NoSuchModel):
            host.client.resolve("alias-a")
        assert [line.name for line in host.client.list().names] == ["alias-b"]
        assert names_watched(host) == {"alias-b": 1}

        assert workers.put(1, "alias-a").standing == "serving"
        back = next(watched)
        assert [worker.key for worker in back.changed] == [one.key]
        assert [line.name for line in back.names] == ["alias-a"]
        assert host.workers("alias-a") == [one.key]
        assert host.workers("alias-b") == [two.key]
        assert names_watched(host) == both
        host.put("over", {"display_name": "over"})
    assert observer.faults == []


@pytest.mark.parametrize("base_first", [True, False], ids=["base-first", "adapter-first"])
@pytest.mark.parametrize("members", [{}, {"aliases": ["taken"]}], ids=["primary", "alias"])
def test_an_adapter_named_as_a_base_is_refused_in_both_orders(
    workers: Workers, base_first: bool, members: Json
) -> None:
    """B78."""
    name = "base" if members else "taken"
    if base_first:
        workers.put(1, name, **members)
        late = workers.put_adapter(2, "taken")
        assert workers.host.workers(name) is not None
    else:
        workers.put_adapter(2, "taken")
        late = workers.put(1, name, **members)
        assert workers.host.workers(name) is None
    assert (late.standing, late.serves) == ("refused", "nothing")
    (reason,) = late.reasons
    assert reason.rule == "adapter_name_taken"
    assert len(reason.against) == 1


@pytest.mark.parametrize("first", [1, 2])
def test_a_base_named_as_an_alias_of_another_is_refused_in_both_orders(
    workers: Workers, first: int
) -> None:
    """B67."""
    cards: dict[int, Json] = {1: {"name": "a", "aliases": ["b"]}, 2: {"name": "b"}}
    second = 3 - first
    assert workers.put(first, **cards[first]).standing == "serving"
    verdict = workers.put(second, **cards[second])
    assert verdict.standing == "refused"
    assert [reason.rule for reason in verdict.reasons] == ["name_taken"]


def test_another_configuration_under_a_served_name_stands_by_and_is_in_no_answer(
    workers: Workers,
) -> None:
    """B70, B75."""
    host = workers.host
    one = workers.put(1, "alias-a", kv_cache_block_size=16)
    two = workers.put(2, "alias-a", kv_cache_block_size=32)
    assert (two.standing, two.serves) == ("standby", "nothing")
    (reason,) = two.reasons
    assert (reason.rule, reason.field) == ("other_fingerprint", "kv_cache_block_size")
    assert host.workers("alias-a") == [one.key]
    assert [worker.key for worker in host.client.workers().workers] == [one.key]
    assert [(line.name, line.workers) for line in host.client.list().names] == [("alias-a", 1)]
    assert names_watched(host) == {"alias-a": 1}


def test_equal_primaries_with_different_sources_register_on_one_endpoint(
    neighbours: Workers,
) -> None:
    one = neighbours.put(1, "alias-a", source_path="/mount/a")
    two = neighbours.put(2, "alias-a", source_path="/mount/b")
    # It is let in; that its source makes it another configuration is the next gate's business.
    assert (one.standing, two.standing) == ("serving", "standby")
    third = neighbours.put(3, "alias-b", source_path="/mount/b")
    assert third.standing == "refused"  # for the first, which it does not suit


def test_sources_that_differ_by_a_slash_do_not_match(neighbours: Workers) -> None:
    """B63."""
    assert neighbours.put(1, "alias-a", source_path=SOURCE).standing == "serving"
    late = neighbours.put(2, "alias-b", source_path=f"{SOURCE}/")
    assert late.standing == "refused"
    (reason,) = late.reasons
    assert (reason.rule, reason.found, reason.expected) == (
        "different_source",
        f"{SOURCE}/",
        SOURCE,
    )
    assert neighbours.host.workers("alias-b") is None


def test_two_cards_that_say_only_their_names_both_serve(host: Host) -> None:
    assert host.put("one", {"display_name": "a"}).standing == "serving"
    assert host.put("two", {"display_name": "b"}).standing == "serving"
    assert [line.name for line in host.client.list().names] == ["a", "b"]


def test_a_base_and_an_adapter_of_one_server_both_serve(host: Host) -> None:
    server = {"url": "http://127.0.0.1:8001", "source_path": SOURCE}
    adapter = {"display_name": "style", "lora": {"name": "style"}} | server
    assert host.put("adapter", adapter).standing == "orphan"
    assert host.put("base", {"display_name": "tiny"} | server).standing == "serving"
    resolution = host.client.resolve("style")
    assert (resolution.kind, resolution.ready) == ("adapter", True)
    assert [worker.url for worker in resolution.workers] == [server["url"]]
    assert host.workers("tiny")


def test_a_second_card_for_one_server_and_source_is_a_duplicate_and_says_what_to_do(
    host: Host,
) -> None:
    server = {"url": "http://127.0.0.1:8001", "source_path": SOURCE}
    first = host.put("first", {"display_name": "a"} | server)
    second = host.put("second", {"display_name": "b"} | server)
    assert (first.standing, second.standing) == ("serving", "duplicate")
    (reason,) = second.reasons
    assert reason.rule == "duplicate_key"
    assert reason.against == (first.file,)
    assert "list the other name under aliases" in reason.message
    host.put("first", {"display_name": "a", "aliases": ["b"]} | server)
    assert host.workers("b") == [first.key]
