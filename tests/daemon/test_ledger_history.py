"""What became of cards is told: by file and by name, the latest first, across restarts."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from discoveryd.daemon.ledger.ledger import LINGER_SECONDS, Ledger
from discoveryd.daemon.ledger.rows import Event
from discoveryd.daemon.writer import Writer
from tests.core.cards import TORN, card
from tests.daemon.disk import until
from tests.daemon.ledgers import keeping, put


@pytest.fixture
def path(socket_directory: Path) -> Path:
    return socket_directory / "ledger"


async def life(writer: Writer) -> None:
    """Let two cards come, clash, break and go."""
    await put(writer, a=card("m", ("x",)), b=card("n", ("x",), at="ns/d/e/1"))
    await put(writer, b=TORN)
    await put(writer, a=None)
    await put(writer, b=card("n", ("y",), at="ns/d/e/1"))


# Invalid twice: when the other went, its last valid content could serve.
LIFE_OF_B = [("b", "serving"), ("b", "invalid"), ("b", "invalid"), ("b", "blocked")]


def told(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.file, event.standing) for event in events]


async def written(ledger: Ledger) -> None:
    """Wait until nothing of the history is in memory only."""
    await until(lambda: len(ledger._told) == 0 and not ledger._told._in_hand)


@pytest.mark.parametrize("where", ["in memory", "in the file", "after a restart", "without a file"])
async def test_the_history_is_told_wherever_it_is(path: Path, where: str) -> None:
    async with keeping(None if where == "without a file" else path) as writer:
        await life(writer)
        if where == "in the file":
            await written(writer.ledger)
        if where != "after a restart":
            await check_the_life(writer.ledger)
    if where == "after a restart":
        async with keeping(path) as writer:
            await check_the_life(writer.ledger)


async def test_what_was_held_back_is_told_later_as_it_was_and_in_order(path: Path) -> None:
    async with keeping(path) as writer:
        writer.hold_back()
        await put(writer, a=card("m"))
        assert told(await writer.ledger.history(None, None, 10)) == []
        await put(writer, a=TORN)
        await put(writer, a=None)
        assert told(await writer.ledger.history(None, None, 10)) == [
            ("a", "invalid"),
            ("a", "serving"),
        ]
        await writer.tell()
        assert told(await writer.ledger.history(None, None, 1)) == [("a", None)]
        await put(writer, b=card("n"))
        assert told(await writer.ledger.history(None, None, 1)) == [("b", "serving")]


async def check_the_life(ledger: Ledger) -> None:
    assert told(await ledger.history(["b"], None, 10)) == LIFE_OF_B
    assert told(await ledger.history(["b", "a"], None, 10)) == [
        ("b", "serving"),
        ("b", "invalid"),
        ("a", None),
        ("b", "invalid"),
        ("b", "blocked"),
        ("a", "serving"),
    ]
    assert told(await ledger.history(None, "x", 10)) == [
        ("b", "invalid"),
        ("a", None),
        ("b", "invalid"),
        ("b", "blocked"),
        ("a", "serving"),
    ]
    assert told(await ledger.history(None, "y", 10)) == [("b", "serving")]
    assert len(await ledger.history(None, None, 10)) == 6
    assert told(await ledger.history(None, None, 2)) == [("b", "serving"), ("b", "invalid")]
    assert await ledger.history(["c"], None, 10) == []
    assert await ledger.history(None, "z", 10) == []


async def test_an_event_says_why_and_of_which_worker(path: Path) -> None:
    async with keeping(path) as writer:
        await life(writer)
    async with keeping(path) as writer:
        *_, event = await writer.ledger.history(["b"], None, 10)
        assert str(event.key) == "ns/d/e/1"
        assert event.names == ("n", "x")
        (reason,) = event.reasons
        assert reason.rule == "name_claimed"
        assert reason.against == ("a",)


async def test_memory_and_file_together_tell_each_event_once(path: Path) -> None:
    async with keeping(path) as writer:
        for number in range(30):
            await put(writer, a=card("m", url=f"http://{number}", labels={"n": str(number)}))
            await put(writer, a=None)
            events = await writer.ledger.history(["a"], None, 1000)
            assert told(events) == [("a", None), ("a", "serving")] * (number + 1)
            if number % 7 == 0:
                await written(writer.ledger)


async def test_only_the_latest_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoveryd.daemon.ledger.tables.MOST_EVENTS", 20)
    async with keeping(path) as writer:
        for number in range(50):
            await put(writer, a=card("m", (f"x{number}",)))
            await put(writer, a=None)
            await written(writer.ledger) if number % 10 == 0 else None
        await written(writer.ledger)
        assert len(await writer.ledger.history(None, "m", 1000)) == 20
        assert await writer.ledger.history(None, "x0", 1000) == []
    with closing(sqlite3.connect(path)) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a literal
            for table in ("events", "names")
        ]
    assert counts == [20, 40]


async def test_without_a_file_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoveryd.daemon.ledger.ledger.MOST_UNWRITTEN", 20)
    async with keeping(None) as writer:
        for _ in range(50):
            await put(writer, a=card("m"))
            await put(writer, a=None)
        assert len(await writer.ledger.history(None, None, 1000)) == 20


async def test_events_that_could_not_be_written_are_written_later(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        await written(writer.ledger)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await life(writer)
            await until(lambda: writer.ledger.problems() != [])
            assert told(await writer.ledger.history(["b"], None, 10)) == LIFE_OF_B
        await until(lambda: writer.ledger.problems() == [])
        await written(writer.ledger)
        assert told(await writer.ledger.history(["b"], None, 10)) == LIFE_OF_B
    async with keeping(path) as writer:
        assert told(await writer.ledger.history(["b"], None, 10)) == LIFE_OF_B


async def test_a_history_that_is_broken_is_moved_aside_with_its_ledger_and_changes_no_answer(
    path: Path,
) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("DROP TABLE events")
        assert told(await writer.ledger.history(["a"], None, 10))[-1:] in ([], [("a", "serving")])
        await put(writer, b=card("n", at="ns/d/e/1"))
        await until(lambda: "was broken" in "".join(writer.ledger.problems()))
        await written(writer.ledger)
        cursor = writer.answers.cursor
    async with keeping(path) as writer:
        assert len(writer.registry.files) == 2
        assert writer.answers.cursor == cursor
        assert told(await writer.ledger.history(["b"], None, 10)) == [("b", "serving")]


async def test_without_a_ledger_the_loop_is_left_alone_once_an_event_was_told() -> None:
    async with keeping(None) as writer:
        applied = 0
        apply = writer.apply

        async def again() -> None:
            nonlocal applied
            applied += 1
            await apply()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.ledger.run, again)
            await put(writer, a=card("m"))
            await anyio.sleep(3 * LINGER_SECONDS)
            tasks.cancel_scope.cancel()
        assert applied == 0
