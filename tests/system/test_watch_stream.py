"""Watch: the difference, whole revisions, merged for the slow; replayed it is the present state."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from discoveryd.client import Client, Cursor
from discoveryd.interface import Name, WatchReply, Worker
from tests.system.dropping import Host, Json, envelope, instance_record, store_name, write
from tests.system.raw import Raw, call
from tests.system.running import until


class Replay:
    """What a watcher knows: the present state, if it has understood everything."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.names: dict[str, Name] = {}
        self.cursor: Cursor | None = None
        self.replies = 0

    def take(self, reply: WatchReply) -> None:
        """Learn what the reply says."""
        self.replies += 1
        if reply.reset:
            self.workers.clear()
            self.names.clear()
        for key in reply.removed:
            self.workers.pop(key, None)  # it may have come and gone meanwhile
        for worker in reply.changed:
            self.workers[worker.key] = worker
        for name in reply.gone:
            self.names.pop(name, None)
        for line in reply.names:
            self.names[line.name] = line
        if not reply.partial:
            self.cursor = reply.cursor

    def assert_is_the_present(self, client: Client) -> None:
        """Compare with what the daemon says when it is asked."""
        listed, workers = client.list(), client.workers()
        assert self.workers == {worker.key: worker for worker in workers.workers}
        assert self.names == {line.name: line for line in listed.names}
        assert listed.cursor == workers.cursor


@contextlib.contextmanager
def watching(
    host: Host, since: Cursor | None = None, name: str | None = None
) -> Iterator[Iterator[WatchReply]]:
    with host.daemon.client() as client, contextlib.closing(client.watch(since, name)) as replies:
        yield replies


def test_the_first_reply_is_everything_and_the_next_ones_what_changes(host: Host) -> None:
    host.put("a", {"display_name": "a", "aliases": ["x"]})
    with watching(host) as replies:
        first = next(replies)
        assert (first.reset, first.partial, first.gone, first.removed) == (True, False, (), ())
        assert [worker.model for worker in first.changed] == ["a"]
        assert [line.name for line in first.names] == ["a", "x"]

        host.put("b", {"display_name": "b"})
        second = next(replies)
        assert not second.reset
        assert [worker.model for worker in second.changed] == ["b"]
        assert [line.name for line in second.names] == ["b"]

        host.put("a", {"display_name": "a", "url": "http://127.0.0.1:1", "instance": "a"})
        third = next(replies)
        assert [worker.url for worker in third.changed] == ["http://127.0.0.1:1"]
        assert third.gone == ("x",)

        host.remove(host.cards / "b.json")
        fourth = next(replies)
        assert (fourth.changed, fourth.names) == ((), ())
        assert fourth.removed == (second.changed[0].key,)
        assert fourth.gone == ("b",)
        revisions = [reply.cursor.revision for reply in (first, second, third, fourth)]
        assert revisions == sorted(set(revisions))


def test_an_empty_host_has_an_empty_first_reply(host: Host) -> None:
    with watching(host) as replies:
        first = next(replies)
        assert first.reset
        assert (first.changed, first.names) == ((), ())


def test_a_watch_goes_on_from_a_cursor(host: Host) -> None:
    host.put("a", {"display_name": "a"})
    since = host.client.list().cursor
    host.put("b", {"display_name": "b"})
    host.put("c", {"display_name": "c"})
    host.remove(host.cards / "c.json")
    with watching(host, since) as replies:
        first = next(replies)
    assert not first.reset
    assert [worker.model for worker in first.changed] == ["b"]
    assert "b" in {line.name for line in first.names}
    assert "c" not in {line.name for line in first.names}
    with watching(host, first.cursor) as replies:
        assert next(replies).heartbeat, "nothing has happened since"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda now: Cursor("another", now.revision),
        lambda now: Cursor(now.epoch, now.revision + 1_000),
        lambda now: Cursor(now.epoch, -1),
    ],
    ids=["epoch", "future", "negative"],
)
def test_a_cursor_that_history_does_not_know_begins_anew(
    host: Host, wrong: Callable[[Cursor], Cursor]
) -> None:
    host.put("a", {"display_name": "a"})
    now = host.client.list().cursor
    with watching(host, wrong(now)) as replies:
        first = next(replies)
    assert (first.reset, first.cursor) == (True, now)
    assert [worker.model for worker in first.changed] == ["a"]


def test_a_watch_of_a_name_tells_of_that_name_and_its_workers_only(host: Host) -> None:
    card: Json = {"display_name": "a", "aliases": ["x"], "component": "c"}
    host.put("one", card)
    host.put("other", {"display_name": "other"})
    with watching(host, name="x") as replies:
        first = next(replies)
        assert [line.name for line in first.names] == ["x"]
        (one,) = first.changed
        host.put("other", {"display_name": "another", "component": "other"})
        host.put("two", card)
        second = next(replies)
        assert [worker.instance for worker in second.changed] == ["two"]
        assert [(line.name, line.workers) for line in second.names] == [("x", 2)]
        host.remove(host.cards / "one.json")
        third = next(replies)
        assert third.removed == (one.key,)
        host.remove(host.cards / "two.json")
        fourth = next(replies)
        assert (fourth.removed, fourth.gone) == ((second.changed[0].key,), ("x",))


def test_a_watch_of_a_name_that_nobody_serves_tells_when_somebody_does(host: Host) -> None:
    with watching(host, name="late") as replies:
        first = next(replies)
        assert (first.reset, first.changed, first.names) == (True, (), ())
        host.put("late", {"display_name": "late"})
        second = next(replies)
        assert [worker.model for worker in second.changed] == ["late"]


def test_a_revision_that_changes_nobody_served_is_not_sent_alone(host: Host) -> None:
    host.put("a", {"display_name": "a"})
    with watching(host) as replies:
        first = next(replies)
        assert host.put("bad", b"{").standing == "invalid"
        assert host.put("refused", {"display_name": "r", "component": "a"}).standing == "refused"
        host.put("b", {"display_name": "b"})
        second = next(replies)
    assert [worker.model for worker in second.changed] == ["b"]
    assert second.cursor.revision >= first.cursor.revision + 3


def test_a_slow_watcher_is_told_less_often_but_not_less(host: Host) -> None:
    padding = "y" * 100_000
    rounds = 120
    with Raw(host.daemon.socket) as raw:
        raw.send(call("Watch", more=True))
        until(lambda: host.client.status().watchers == 1, "the watch has begun")
        for number in range(rounds):
            host.put("a", {"display_name": f"a-{number}", "labels": {"padding": padding}})
        host.put("end", {"display_name": "end"})
        names: set[str] = set()
        replies = 0
        while "end" not in names:
            reply = raw.receive()
            assert reply is not None
            replies += 1
            names -= set(reply["parameters"]["gone"])
            names |= {line["name"] for line in reply["parameters"]["names"]}
    assert names == {f"a-{rounds - 1}", "end"}
    assert replies < rounds / 2
    assert host.daemon.process.poll() is None


def test_watchers_are_counted_and_forgotten(host: Host) -> None:
    with watching(host) as one, watching(host) as two:
        next(one)
        next(two)
        assert host.client.status().watchers == 2
    until(lambda: host.client.status().watchers == 0, "they are forgotten")


# A random history of real file operations


MEMBERS: dict[str, list[Any]] = {
    "component": ["c", "e"],
    "source_path": ["/s", "/t", ""],
    "aliases": [[], ["x"], ["y", "a"]],
    "kv_cache_block_size": [1, 2],
    "accepting": [True, False],
    "labels": [{"weight": "1"}, {"weight": "2"}],
    "instance": ["1", "2"],
}


class Churn:
    """Does to the files what people and programs do."""

    def __init__(self, host: Host, seed: int) -> None:
        self._host = host
        self._random = random.Random(seed)  # noqa: S311 - a test's choices

    def act(self) -> None:
        """Do one thing."""
        deeds = [self._put, self._put, self._put, self._tear, self._touch, self._unlink]
        deeds += [self._rename, self._batch, self._store_put, self._store_put, self._store_unlink]
        self._random.choice(deeds)()

    def _file(self) -> Path:
        return self._host.cards / f"{self._random.randrange(10)}.json"

    def _card(self) -> Json:
        card: Json = {"display_name": self._random.choice("abcd")}
        for member, values in MEMBERS.items():
            if self._random.random() < 0.4:
                card[member] = self._random.choice(values)
        if self._random.random() < 0.15:
            card |= {"lora": {"name": "l"}, "display_name": "l", "source_path": "/s"}
            card.setdefault("instance", "1")
        return card

    def _put(self) -> None:
        write(self._file(), self._card())

    def _batch(self) -> None:
        for _ in range(self._random.randrange(2, 8)):
            self._put()

    def _tear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            path = self._file()
            path.write_bytes(path.read_bytes()[:-5])

    def _touch(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            path = self._file()
            path.write_bytes(path.read_bytes())

    def _unlink(self) -> None:
        self._file().unlink(missing_ok=True)

    def _rename(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file().rename(self._file())

    def _store_put(self) -> None:
        at = f"demo/backend/generate/{self._random.randrange(1, 4)}"
        if self._random.random() < 0.7:
            write(self._host.instances / store_name(at), instance_record(at))
        card = self._card() | {"lora": None}
        write(self._host.mdc / store_name(at), envelope(at, card))

    def _store_unlink(self) -> None:
        at = f"demo/backend/generate/{self._random.randrange(1, 4)}"
        directory = self._random.choice([self._host.mdc, self._host.instances])
        (directory / store_name(at)).unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_replayed_watch_is_the_present_state_after_a_random_history(
    host: Host, seed: int
) -> None:
    replay = Replay()
    late = Replay()
    begun = threading.Event()

    def follow() -> None:
        with watching(host) as replies:
            for reply in replies:
                replay.take(reply)
                begun.set()
                if "the end" in replay.names:
                    return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert begun.wait(10)
    churn = Churn(host, seed)
    for number in range(250):
        churn.act()
        if number % 7 == 0:
            host.client.sync()
        if number == 100:  # one that leaves, and comes back with its last cursor
            with watching(host) as replies:
                late.take(next(replies))
    # A record that is gone has effect for a second more: after that nothing changes by itself.
    present = {path.name for path in host.instances.iterdir()}
    until(lambda: settled(host, present), "records that are gone have lost their effect")
    host.put("end", {"display_name": "the end"})
    follower.join(10)
    assert not follower.is_alive()

    replay.assert_is_the_present(host.client)
    assert replay.cursor == host.client.list().cursor
    with watching(host, late.cursor) as replies:
        first = next(replies)
        assert not first.reset
        late.take(first)
    late.assert_is_the_present(host.client)


def settled(host: Host, records: set[str]) -> bool:
    """Whether every store card that serves has its record."""
    host.client.sync()
    served = host.client.workers(namespace="demo").workers
    return all(store_name("/".join(worker.key.split("/")[:4])) in records for worker in served)
