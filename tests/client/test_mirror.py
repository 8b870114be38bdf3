"""The copy of the live view says what the daemon says, whatever happened and however it was told.

Random histories of the real registry are told by the real watch, in pieces where they are long, to
copies of which one hears of every revision, one only now and then, and one loses its connection.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from discoveryd.client.mirror import Mirror
from discoveryd.core import history
from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch
from discoveryd.core.registry import Registry
from discoveryd.daemon.methods import replies
from discoveryd.daemon.methods.watch import _Everything
from discoveryd.interface import Cursor, Name, Resolution, WatchReply
from tests.client import fakes
from tests.core.recipes import (
    NAMES,
    Directory,
    Operation,
    Recipe,
    disturbances,
    edits,
    exchanges,
    files,
    operations,
    operator_tables,
    owners,
    puts,
    recipes,
    seldom,
)

EXAMPLES = int(os.environ.get("DISCOVERYD_EXAMPLES", "200"))
SMALL_PIECE = 700
"""About two workers."""

HISTORY = 12
"""How many departures are remembered, so that there are resets besides those of another epoch."""

_decode = msgspec.json.Decoder(WatchReply).decode


class Reader:
    """A mirror, and whether nothing has been told over its present connection."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.first = True


class MirrorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory()
        self.real = Registry(count(1).__next__)
        self.answers = Answers("0")
        self.answers.history = history.History("0", limit=HISTORY)
        self.writer = SimpleNamespace(answers=self.answers, differences={})
        self.everything = _Everything(cast("Any", self.writer))
        self.epochs = count(1)
        self.prompt, self.slow, self.losing = Reader(), Reader(), Reader()

    @initialize(contents=st.dictionaries(files, recipes, min_size=5))
    def begin(self, contents: dict[str, Recipe]) -> None:
        self._step([("put", file, recipe) for file, recipe in contents.items()])

    @rule(drawn=st.lists(puts, min_size=1, max_size=3))
    def arrive(self, drawn: list[Operation]) -> None:
        self._step(drawn)

    @rule(drawn=st.lists(st.one_of(edits, exchanges), min_size=1, max_size=3))
    def edit(self, drawn: list[Operation]) -> None:
        self._step(drawn)

    @rule(drawn=disturbances)
    def disturb(self, drawn: Operation) -> None:
        self._step([drawn])

    @rule(file=files)
    def leave_and_come_back(self, file: str) -> None:
        recipe = self.directory.contents.get(file)
        if recipe is not None:
            self._step([("remove", file)])
            self._step([("put", file, recipe)])

    @rule(
        drawn=st.lists(operations, max_size=5),
        owners=owners,
        operator_aliases=st.one_of(st.none(), operator_tables),
    )
    def do_all_at_once(
        self,
        drawn: list[Operation],
        owners: dict[str, int],
        operator_aliases: dict[str, str] | None,
    ) -> None:
        self._step(drawn, owners, operator_aliases)

    @rule(really=seldom)
    def begin_an_epoch(self, really: bool) -> None:
        if not really:
            return
        self.answers.history.begin(str(next(self.epochs)))
        self._published()

    @rule()
    def tell_the_slow_one(self) -> None:
        self._tell(self.slow)

    @rule(pieces=st.integers(0, 3))
    def lose_the_connection(self, pieces: int) -> None:
        """Tell the first pieces, and again from the cursor that the copy has."""
        reader = self.losing
        before = _said(reader.mirror)
        for piece, _ in zip(self._replies(reader), range(pieces), strict=False):
            if piece.partial:
                reader.mirror.take(piece)
                assert _said(reader.mirror) == before
        reader.mirror.forget_pieces()
        reader.first = True
        self._tell(reader)

    def _step(
        self,
        drawn: Iterable[Operation],
        owners: Mapping[str, int] = MappingProxyType({}),
        operator_aliases: Mapping[str, str] | None = None,
    ) -> None:
        sightings = self.directory.sightings(drawn, mtimes=MappingProxyType({}), owners=owners)
        batch = Batch(sightings=sightings, operator_aliases=operator_aliases)
        self.answers.publish(self.real.apply(batch))
        self._published()

    def _published(self) -> None:
        self.writer.differences.clear()
        self._tell(self.prompt)

    def _replies(self, reader: Reader) -> Iterator[WatchReply]:
        mirror = reader.mirror
        since = None if reader.first and not mirror.whole else mirror.cursor
        at = None if since is None else history.Cursor(since.epoch, since.revision)
        return map(_decode, self.everything.tell(at, first=reader.first))

    def _tell(self, reader: Reader) -> None:
        mirror = reader.mirror
        told = False
        for piece in self._replies(reader):
            told = not piece.partial
            mirror.take(piece)
        reader.first = False
        if not told:
            # Nothing to tell: the next heartbeat brings the cursor.
            mirror.take(msgspec.convert(self._heartbeat(), WatchReply))
        self._agrees(reader.mirror)

    def _heartbeat(self) -> dict[str, Any]:
        at = self.answers.cursor
        return fakes.watched(cursor={"epoch": at.epoch, "revision": at.revision})

    def _agrees(self, mirror: Mirror) -> None:
        answers = self.answers
        assert list(mirror.workers.values()) == list(map(replies.worker, answers.workers.values()))
        assert sorted(mirror.names.values(), key=_name) == sorted(
            map(replies.name, answers.lines()), key=_name
        )
        for name in NAMES:
            found = answers.resolve(name)
            said = mirror.resolve(name)
            assert said is mirror.resolve(name), "an answer is made once"
            if found is None:
                assert said is None
                assert mirror.workers_of(name) == ()
                continue
            answer, kind = found
            at = answers.cursor
            assert said is not None
            assert said == Resolution(
                name=name,
                kind=kind,
                model=answer.model,
                ready=answer.ready,
                workers=tuple(map(replies.worker, answer.workers)),
                cursor=Cursor(at.epoch, at.revision),
            )
            members = tuple(map(replies.worker, answer.members.values()))
            assert mirror.workers_of(name) == members


def _name(line: Name) -> str:
    return line.name


def _said(mirror: Mirror) -> object:
    return mirror.cursor, dict(mirror.names), dict(mirror.workers)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PIECE_BYTES", SMALL_PIECE)


MirrorMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMirrorMachine = pytest.mark.timeout(0 if EXAMPLES > 200 else 120)(MirrorMachine.TestCase)


def reply(**members: Any) -> WatchReply:
    return msgspec.convert(fakes.watched(**members), WatchReply)


def told(*instances: str) -> Mirror:
    mirror = Mirror()
    mirror.take(reply(reset=True, changed=[*map(fakes.worker, instances)], names=[fakes.name()]))
    return mirror


def order(mirror: Mirror, name: str = "llama") -> list[str]:
    found = mirror.resolve(name)
    return [] if found is None else [worker.instance for worker in found.workers]


def test_a_worker_that_is_edited_keeps_its_place() -> None:
    mirror = told("1", "2")
    mirror.take(reply(changed=[fakes.worker("1", url="http://127.0.0.1:9")]))
    assert order(mirror) == ["1", "2"]
    found = mirror.resolve("llama")
    assert found is not None
    assert found.workers[0].url == "http://127.0.0.1:9"


def test_a_worker_that_came_back_is_last_if_its_going_was_told() -> None:
    mirror = told("1", "2")
    mirror.take(reply(removed=[fakes.worker("1")["key"]]))
    mirror.take(reply(changed=[fakes.worker("1", admission=3)]))
    assert order(mirror) == ["2", "1"]


def test_a_worker_that_came_back_unnoticed_is_last() -> None:
    mirror = told("1", "2")
    mirror.take(reply(changed=[fakes.worker("1", admission=3)]))
    assert order(mirror) == ["2", "1"]
    assert [worker.instance for worker in mirror.workers.values()] == ["2", "1"]


def test_an_old_worker_that_takes_on_a_name_stands_there_by_its_age() -> None:
    mirror = told()
    old, new = fakes.worker("1", aliases=[]), fakes.worker("2", aliases=["chat"])
    chat = fakes.name("chat", kind="alias")
    mirror.take(reply(changed=[old, new], names=[fakes.name(), chat]))
    assert order(mirror, "chat") == ["2"]
    mirror.take(reply(changed=[fakes.worker("1", aliases=["chat"])]))
    assert order(mirror, "chat") == ["1", "2"]


def test_what_drains_is_among_the_workers_but_not_in_the_answer() -> None:
    mirror = told("1", "2")
    mirror.take(reply(changed=[fakes.worker("1", accepting=False)]))
    assert order(mirror) == ["2"]
    assert [worker.instance for worker in mirror.workers_of("llama")] == ["1", "2"]


def test_an_operator_alias_is_answered_by_what_it_stands_for() -> None:
    mirror = told("1", "2")
    mirror.take(reply(names=[fakes.name("gpt", kind="operator", ready=False)]))
    found = mirror.resolve("gpt")
    assert found is not None
    assert (found.name, found.kind, found.model, found.ready) == ("gpt", "operator", "llama", False)
    assert order(mirror, "gpt") == ["1", "2"]
    assert [worker.instance for worker in mirror.workers_of("gpt")] == ["1", "2"]


def test_readiness_is_what_the_daemon_says() -> None:
    mirror = told("1")
    mirror.take(reply(names=[fakes.name(ready=False)]))
    found = mirror.resolve("llama")
    assert found is not None
    assert not found.ready


def test_workers_are_collected_once_until_they_change() -> None:
    mirror = told("1", "2")
    first = mirror.resolve("llama")
    mirror.take(reply(cursor={"epoch": "e1", "revision": 8}, names=[fakes.name("other")]))
    second = mirror.resolve("llama")
    assert first is not None
    assert second is not None
    assert (first.cursor.revision, second.cursor.revision) == (7, 8)
    assert first.workers is second.workers
