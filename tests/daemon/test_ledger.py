"""What is kept outlives the daemon: whole, in order, and before anybody was told."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.core.batch import Batch, Sighting
from discoveryd.core.history import Cursor
from discoveryd.core.registry import Registry
from discoveryd.core.state import FileState, Ranks, put_back, take_out
from discoveryd.core.verdict import Standing
from discoveryd.daemon.ledger.file import LedgerFile
from discoveryd.daemon.ledger.owed import Owed
from discoveryd.daemon.ledger.rows import Meta
from discoveryd.daemon.ledger.tables import Writing
from tests.core.cards import TORN, adapter, card, expired, forbidden
from tests.core.recipes import Directory, Operation, mtimes, operations, operator_tables, owners
from tests.daemon.ledgers import as_killed, keeping, put, sightings


@pytest.fixture
def path(socket_directory: Path) -> Path:
    return socket_directory / "ledger"


def standing(registry: Registry, file: str) -> str:
    verdict = registry.verdict(file)
    return "unknown" if verdict is None else verdict.standing


async def test_a_registry_comes_back_as_it_was(path: Path) -> None:
    async with keeping(path) as writer:
        await put(
            writer,
            base=card("m", ("x",), source="S", at="ns/c/e/1"),
            lora=adapter("l", source="S", at="ns/c/e/1/l"),
            refused=card("n", ("x",), source="S", at="ns/c/e/2"),
            blocked=card("x", at="ns/d/e/1"),
            standby=card("m", ("x",), source="S", at="ns/c/e/3", block=32),
            duplicate=card("z", at="ns/c/e/1"),
            orphan=adapter("o", at="ns/e/e/1/o"),
            gone=card("g", at="ns/g/e/1"),
            dead=expired(card("d", at="ns/h/e/1")),
            foreign=forbidden(card("f", at="ns/i/e/1")),
            torn=TORN,
            later=card("t", at="ns/j/e/1"),
        )
        await put(writer, gone=None, later=TORN)
        before, cursor = take_out(writer.registry), writer.answers.cursor
        lines, served = list(writer.answers.lines()), list(writer.answers.workers.values())
        verdicts = {file.file: writer.registry.verdict(file.file) for file in before.files}
    async with keeping(path, "second") as writer:
        assert take_out(writer.registry) == before
        assert writer.answers.cursor == cursor == Cursor("first", 2)
        assert list(writer.answers.lines()) == lines
        assert list(writer.answers.workers.values()) == served
        assert verdicts == {f.file: writer.registry.verdict(f.file) for f in before.files}
        assert writer.standings["serving"] == 2


async def test_it_is_in_the_file_before_anybody_is_told(path: Path) -> None:
    copies: list[Path] = []
    async with keeping(path) as writer:
        writer.listeners.append(lambda _: copies.append(as_killed(path)))
        await put(writer, a=card("m"))
        async with keeping(copies[0]) as other:
            assert other.answers.resolve("m") is not None
            assert other.answers.cursor == writer.answers.cursor


async def test_nothing_new_writes_nothing_and_changes_no_revision(path: Path) -> None:
    found = {"a": card("m"), "b": card("m", at="ns/c/e/2")}
    async with keeping(path) as writer:
        await put(writer, **found)
    async with keeping(path, cards=found) as writer:
        await put(writer, **found)
        assert writer.answers.cursor == Cursor("first", 1)
        assert all(file.card is found[file.file] for file in take_out(writer.registry).files)
        assert not writer.answers.history.since(Cursor("first", 1)).reset
        assert writer.answers.history.since(Cursor("first", 0)).reset


async def test_an_empty_registry_goes_on_too(path: Path) -> None:
    async with keeping(path) as writer:
        await writer.apply()
    async with keeping(path, "second") as writer:
        await writer.apply()
        assert writer.answers.cursor == Cursor("first", 0)


async def test_ranks_go_on_after_the_last_that_was_drawn(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"), b=card("n", at="ns/d/e/1"))
        await put(writer, b=None)
        last = writer.ledger.ranks.last
    async with keeping(path) as writer:
        await put(writer, c=card("o", at="ns/f/e/1"))
        assert min(e.arrival for e in take_out(writer.registry).entries if "c" in e.claims) > last


async def test_what_changed_meanwhile_is_one_revision_for_those_who_watch(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"), b=card("n", at="ns/d/e/1"))
    async with keeping(path, "second") as writer:
        await put(writer, a=None, b=card("n", at="ns/d/e/1", url="http://b"))
        difference = writer.answers.history.since(Cursor("first", 1))
        assert writer.answers.cursor == Cursor("first", 2)
        assert not difference.reset
        assert {str(key) for key in difference.keys} == {"ns/c/e/1", "ns/d/e/1"}
        assert difference.names == ("m",)


async def test_the_operators_table_of_the_last_run_counts_until_the_new_one_is_applied(
    path: Path,
) -> None:
    async with keeping(path) as writer:
        await writer.apply(sightings({"a": card("m"), "b": card("x", at="ns/d/e/1")}))
        await writer.apply((), {"y": "m"})
    async with keeping(path) as writer:
        assert writer.answers.target("y") == "m"
        await writer.apply((), {"x": "m"})
        assert writer.answers.cursor == Cursor("first", 3)
        assert standing(writer.registry, "b") == Standing.BLOCKED


async def test_what_liveness_saw_of_a_process_is_kept(path: Path) -> None:
    async with keeping(path) as writer:
        seen = Sighting(file="a", found=card("m"), observed=4711)
        await writer.apply([seen])
    async with keeping(path) as writer:
        assert take_out(writer.registry).files[0].observed == 4711


async def test_without_a_file_nothing_is_kept_and_nothing_is_wrong() -> None:
    async with keeping(None) as writer:
        await put(writer, a=card("m"))
        assert writer.ledger.problems() == []
    async with keeping(None, "second") as writer:
        assert writer.answers.cursor == Cursor("second", 0)


async def test_only_its_owner_may_look_into_it(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        modes = {each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
        assert modes == {0o600}


def test_a_card_that_todays_rules_would_not_let_in_is_judged_anew() -> None:
    registry = Registry(Ranks())
    seen = {"a": card("m", source="S"), "b": card("n", source="S", at="ns/c/e/2")}
    registry.apply(Batch(sightings=tuple(sightings(seen))))
    state = take_out(registry)
    # Stands for an older daemon's rules, by which these two could serve together.
    other = FileState(file="b", card=card("n", source="T", at="ns/c/e/2"))
    files = tuple(other if file.file == "b" else file for file in state.files)
    again, same = put_back(msgspec.structs.replace(state, files=files), Ranks(100))
    assert not same
    assert standing(again, "a") == Standing.SERVING
    assert standing(again, "b") == Standing.REFUSED


Step = tuple[list[Operation], dict[str, int], dict[str, int], dict[str, str] | None, bool]

steps = st.tuples(
    st.lists(operations, min_size=1, max_size=4),
    mtimes,
    owners,
    st.one_of(st.none(), st.none(), operator_tables),
    st.booleans(),
)


@settings(max_examples=int(os.environ.get("DISCOVERYD_EXAMPLES", "100")), deadline=None)
@given(history=st.lists(steps, min_size=1, max_size=8))
def test_rows_that_are_written_change_by_change_are_the_whole_state(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        anyio.run(write_and_recall, LedgerFile(f"{directory}/ledger"), history)


async def write_and_recall(file: LedgerFile, history: Sequence[Step]) -> None:
    """Write a random history, here and there with a restart in it, and one at its end."""
    present, ranks, owed = Directory(), Ranks(), Owed()
    registry = Registry(ranks)
    file.begin()
    for number, (drawn, times, uids, aliases, restart) in enumerate(history, 1):
        seen = present.sightings(drawn, mtimes=times, owners=uids)
        change = registry.apply(Batch(sightings=seen, operator_aliases=aliases, now=number))
        owed.change(change, registry)
        table = dict(registry.arbiter.names.operator)
        meta = Meta(epoch="e", revision=number, rank=ranks.last, operator_aliases=table)
        file.write(await owed.take(registry, meta))
        if not restart and number < len(history):
            continue
        file.close()
        recalled = file.recall(file.begin(), {}, ranks)
        assert recalled is not None
        (again, same), told = recalled
        assert same
        assert told == meta
        assert take_out(again) == take_out(registry)
        registry = again
    file.close()


def test_what_is_written_whole_is_copied_into_the_database_by_the_next_writing(path: Path) -> None:
    large = msgspec.structs.replace(card("m"), content=b" " * 10_000)
    names = [f"/cards/{n}.json" for n in range(1000)]
    states = {name: FileState(file=name, card=large) for name in names}
    file = LedgerFile(str(path))
    file.begin()
    file.write(Writing(files=states, whole=True, meta=Meta(epoch="first", revision=1, rank=0)))
    assert path.stat().st_size < 1_000_000
    assert as_killed(path).with_name("ledger.copy-wal").stat().st_size > 10_000_000
    file.write(Writing(meta=Meta(epoch="first", revision=2, rank=0)))
    assert path.stat().st_size > 10_000_000
    file.close()
