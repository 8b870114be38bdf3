"""Whatever the ledger's file is or does, the daemon serves, says so, and destroys nothing.

Covers the ledger's part of K5 and K7: B50 (state of old runs), B87 (what a crash leaves behind).
"""

import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from discoveryd.core.history import Cursor
from discoveryd.core.state import take_out
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.ledger import tables
from discoveryd.daemon.ledger.file import LedgerFile
from discoveryd.daemon.ledger.ledger import Ledger
from discoveryd.daemon.ledger.tables import Writing
from discoveryd.daemon.writer import Writer
from tests.core.cards import card
from tests.daemon.disk import until
from tests.daemon.ledgers import as_killed, beside, keeping, put


@pytest.fixture
def path(socket_directory: Path) -> Path:
    return socket_directory / "ledger"


@pytest.fixture
async def filled(path: Path) -> Path:
    """Give a ledger in which somebody has the name that another waits for."""
    async with keeping(path) as writer:
        await put(writer, late=card("m", at="ns/c/e/1"))
        await put(writer, early=card("m", ("x",), source="S", at="ns/c/e/2", block=32))
    return path


def connect(path: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(path, isolation_level=None))


def run(path: Path, *statements: str) -> None:
    with connect(path) as connection:
        for statement in statements:
            connection.execute(statement)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to look like one " * 100)


def flip(table: str, column: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with connect(path) as connection:
            found = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchone()  # noqa: S608
            bad = bytearray(found[1])
            bad[len(bad) // 2] ^= 0x20
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = ?",  # noqa: S608
                (bytes(bad), found[0]),
            )

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no database": scribble,
    "cut in the middle": cut,
    "of a newer daemon": lambda path: run(path, f"PRAGMA user_version = {tables.FORMAT + 1}"),
    "without a table": lambda path: run(path, "DROP TABLE entries"),
    "with other columns": lambda path: run(path, "ALTER TABLE files RENAME state TO status"),
    "a bit of a file flipped": flip("files", "state"),
    "a bit of a card flipped": flip("files", "card"),
    "a bit of an entry flipped": flip("entries", "state"),
    "a bit of the rest flipped": flip("meta", "state"),
    "a row replaced by text": lambda path: run(path, "UPDATE entries SET state = 'text'"),
    "a row renamed": lambda path: run(path, "UPDATE files SET file = 'other' WHERE file = 'late'"),
    "a file's row missing": lambda path: run(path, "DELETE FROM files WHERE file = 'late'"),
    "a card missing": lambda path: run(path, "UPDATE files SET card = NULL"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_broken_ledger_is_moved_aside_and_a_new_one_begun(
    filled: Path, damage: Callable[[Path], None]
) -> None:
    damage(filled)
    content = filled.read_bytes()
    async with keeping(filled, "second") as writer:
        assert writer.answers.cursor == Cursor("second", 0)
        (aside,) = beside(filled)
        assert aside.read_bytes() == content
        (problem,) = writer.ledger.problems()
        assert str(filled) in problem
        assert str(aside) in problem
        await put(writer, a=card("n"))
        aside.unlink()
        assert writer.ledger.problems() == []
    async with keeping(filled, "third") as writer:
        assert writer.answers.cursor == Cursor("second", 1)
        assert writer.ledger.problems() == []


async def test_what_was_moved_aside_is_never_overwritten(path: Path) -> None:
    for number in range(3):
        scribble(path)
        path.write_bytes(path.read_bytes() + bytes([number]))
        async with keeping(path) as writer:
            await writer.apply()
        path.unlink()
    assert {each.read_bytes()[-1] for each in beside(path)} == {0, 1, 2}


async def test_any_bytes_changed_anywhere_do_not_keep_it_from_starting(filled: Path) -> None:
    whole = filled.read_bytes()
    chance = random.Random(4711)  # noqa: S311 - a test that can be run again
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 10, 200))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        filled.write_bytes(damaged)
        async with keeping(filled, "again") as writer:
            kept = writer.answers.cursor.epoch == "first"
            # Nothing between all and nothing; what is whole may be so in unused bytes only.
            assert kept == (len(writer.registry.files) == 2)
            await put(writer, a=card("n", at="ns/z/e/1"))
        for each in filled.parent.iterdir():
            each.unlink()


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    run(path, "CREATE TABLE bookmarks (url)", "INSERT INTO bookmarks VALUES ('http://a')")
    content = path.read_bytes()
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        assert writer.answers.resolve("m") is not None
        (problem,) = writer.ledger.problems()
        assert "another program" in problem
        assert path.read_bytes() == content
        path.rename(path.with_name("bookmarks"))
        await until(lambda: writer.ledger.problems() == [])
    async with keeping(path) as writer:
        assert writer.answers.resolve("m") is not None


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling link"])
async def test_what_is_no_file_is_left_alone(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path.parent / "missing" / "ledger")
    before = path.lstat()
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        assert writer.answers.resolve("m") is not None
        (problem,) = writer.ledger.problems()
        assert str(path) in problem
        assert path.lstat() == before


async def test_a_missing_directory_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger"
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        assert writer.answers.cursor == Cursor("first", 1)
        (problem,) = writer.ledger.problems()
        assert f"make the directory {path.parent}" in problem
        path.parent.mkdir()
        await until(lambda: writer.ledger.problems() == [])
    async with keeping(path, "second") as writer:
        assert writer.answers.cursor == Cursor("first", 1)
        assert writer.answers.resolve("m") is not None


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """Be somebody to whom modes apply."""
    uid = os.geteuid()
    if uid != 0:
        yield
        return
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    os.chown(tmp_path, 65534, -1)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(uid)


@pytest.mark.usefixtures("nobody")
async def test_a_directory_that_cannot_be_written_is_told_and_tried_again(path: Path) -> None:
    path.parent.chmod(0o555)
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        (problem,) = writer.ledger.problems()
        assert f"let the user with uid {os.geteuid()} write it" in problem
        path.parent.chmod(0o755)
        await until(lambda: writer.ledger.problems() == [])
        assert path.exists()


@pytest.mark.usefixtures("nobody")
async def test_a_file_that_cannot_be_written_is_told_and_left_alone(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
    path.chmod(0o444)
    content = path.read_bytes()
    async with keeping(path) as writer:
        await put(writer, a=card("n"))
        assert writer.answers.resolve("n") is not None
        assert "permission denied" in writer.ledger.problems()[0]
        assert path.read_bytes() == content
        assert beside(path) == []


async def test_another_daemons_ledger_ends_the_start_without_harm(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        with pytest.raises(StartError, match="another discoveryd keeps its ledger at"):
            async with keeping(path):
                pytest.fail("both have it")
        await put(writer, b=card("n", at="ns/d/e/1"))
        assert writer.ledger.problems() == []
    async with keeping(path) as writer:
        assert len(writer.registry.files) == 2


async def test_a_lock_of_another_program_at_the_start_is_told_and_waited_for(filled: Path) -> None:
    with connect(filled) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        async with keeping(filled, "second") as writer:
            await put(writer, a=card("n"))
            assert writer.answers.cursor == Cursor("second", 1)
            assert "locked by another program" in writer.ledger.problems()[0]
            assert beside(filled) == []
            other.close()
            await until(lambda: writer.ledger.problems() == [])
    async with keeping(filled, "third") as writer:
        assert writer.answers.cursor == Cursor("second", 1)
        assert [file.file for file in take_out(writer.registry).files] == ["a"]


async def test_what_cannot_be_written_is_published_in_an_epoch_that_no_ledger_knows(
    path: Path,
) -> None:
    async with keeping(path, retry_seconds=0.2) as writer:
        await put(writer, a=card("m"))
        with connect(path) as other:
            other.execute("BEGIN IMMEDIATE")
            await put(writer, b=card("n", at="ns/d/e/1"))
            behind = writer.answers.cursor
            assert writer.answers.resolve("n") is not None
            assert behind.epoch != "first"
            assert writer.answers.history.since(Cursor("first", 1)).reset
            await put(writer, a=None)
            assert writer.answers.cursor == Cursor(behind.epoch, behind.revision + 1)
            async with keeping(as_killed(path)) as killed:
                assert killed.answers.cursor == Cursor("first", 1)
        await until(lambda: writer.ledger.problems() == [])
        now = writer.answers.cursor
        assert now == Cursor(behind.epoch, behind.revision + 1)
    async with keeping(path) as writer:
        assert writer.answers.cursor == now
        assert [file.file for file in take_out(writer.registry).files] == ["b"]


def limit_pages(writer: Writer, pages: int) -> None:
    """Let the database grow no more: SQLite then reports what a full disk makes it report."""
    file = writer.ledger._file
    assert file is not None
    assert file._connection is not None
    file._connection.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_full_disk_is_told_and_outlived(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        limit_pages(writer, 1)
        large = card("n", at="ns/d/e/1", labels={"much": "x" * 100_000})
        await put(writer, b=large)
        assert writer.answers.resolve("n") is not None
        assert "no room" in writer.ledger.problems()[0]
        limit_pages(writer, 100_000)
        await until(lambda: writer.ledger.problems() == [])
    async with keeping(path) as writer:
        assert {file.file for file in take_out(writer.registry).files} == {"a", "b"}


@pytest.mark.parametrize("replacement", [None, "empty", "older"])
async def test_a_ledger_that_is_taken_away_is_written_anew(
    path: Path, replacement: str | None
) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        older = as_killed(path)
        await put(writer, a=card("m", url="http://a"), b=card("n", at="ns/d/e/1"))
        for part in ("", "-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
        if replacement == "empty":
            path.touch()
        elif replacement == "older":
            shutil.copy(older, path)
            shutil.copy(f"{older}-wal", f"{path}-wal")
        await put(writer, c=card("o", at="ns/f/e/1"))
        assert writer.ledger.problems() == []
        assert writer.answers.cursor == Cursor("first", 3)
        state = take_out(writer.registry)
    async with keeping(path) as writer:
        assert take_out(writer.registry) == state
        assert writer.answers.cursor == Cursor("first", 3)


async def test_a_ledger_that_breaks_while_it_is_used_is_written_anew(path: Path) -> None:
    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        run(path, "DROP TABLE entries")
        await put(writer, b=card("n", at="ns/d/e/1"))
        assert len(beside(path)) == 1
        assert "was broken" in writer.ledger.problems()[0]
        state, cursor = take_out(writer.registry), writer.answers.cursor
    async with keeping(path) as writer:
        assert take_out(writer.registry) == state
        assert writer.answers.cursor == cursor


async def test_nobody_waits_for_a_disk_that_hangs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    write = LedgerFile.write

    def hang(self: LedgerFile, writing: Writing) -> None:
        free.wait(30)
        write(self, writing)

    async with keeping(path) as writer:
        await put(writer, a=card("m"))
        writer.ledger._patience_seconds = 1.0
        monkeypatch.setattr(LedgerFile, "write", hang)
        await put(writer, b=card("n", at="ns/d/e/1"))
        epoch = writer.answers.cursor.epoch
        assert epoch != "first"
        assert "takes too long" in writer.ledger.problems()[0]
        with anyio.fail_after(15):
            for number in range(20):
                await put(writer, **{f"c{number}": card("o", at=f"ns/f/e/{number}")})
        assert writer.answers.cursor == Cursor(epoch, 21)
        free.set()
        await until(lambda: writer.ledger.problems() == [])
        state = take_out(writer.registry)
    async with keeping(path) as writer:
        assert take_out(writer.registry) == state
        assert writer.answers.cursor == Cursor(epoch, 21)


async def test_two_threads_are_never_in_the_file_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writing that hangs is given up, and the one that waited for it must not begin then."""
    free = threading.Event()
    write = LedgerFile.write
    inside: list[Writing] = []
    most: list[int] = []

    def hang(self: LedgerFile, writing: Writing) -> None:
        inside.append(writing)
        most.append(len(inside))
        if writing.meta is None:
            free.wait(30)
        write(self, writing)
        inside.remove(writing)

    async with keeping(path, patience_seconds=0.3) as writer:
        monkeypatch.setattr(LedgerFile, "write", hang)
        await put(writer, a=card("m"))
        await until(lambda: any(writing.meta is None for writing in inside))
        await put(writer, b=card("n", at="ns/d/e/1"))
        await put(writer, c=card("o", at="ns/f/e/1"))
        assert "takes too long" in writer.ledger.problems()[0]
        assert await writer.ledger.history(None, "m", 1) != []
        free.set()
        await until(lambda: writer.ledger.problems() == [])
        state = take_out(writer.registry)
    assert set(most) == {1}
    async with keeping(path) as writer:
        assert take_out(writer.registry) == state


async def test_what_is_owed_for_long_is_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discoveryd.daemon.ledger.owed.MOST_NAMES", 50)
    monkeypatch.setattr("discoveryd.daemon.ledger.ledger.MOST_UNWRITTEN", 50)
    async with keeping(path, retry_seconds=0.3) as writer:
        await put(writer, a=card("m"))
        with connect(path) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(200):
                await put(writer, **{f"b{number}": card(f"n{number}", at=f"ns/d{number}/e/1")})
                await put(writer, **{f"b{number}": None})
                assert len(writer.ledger._owed._files) <= 54
            assert len(writer.ledger._told) <= 50
        await until(lambda: writer.ledger.problems() == [])
    async with keeping(path) as writer:
        assert [file.file for file in take_out(writer.registry).files] == ["a"]


@pytest.mark.parametrize("recalled", [False, True])
async def test_a_start_that_is_broken_off_leaves_the_ledger_as_it_was(
    filled: Path, recalled: bool
) -> None:
    ledger = Ledger(str(filled))
    writer = Writer("second", {}, ledger)
    known = await ledger.open()
    if recalled:
        await ledger.recall(known, {})
    await ledger.close(writer.apply)
    async with keeping(filled) as after:
        assert len(after.registry.files) == 2
        assert after.answers.cursor == Cursor("first", 2)


async def test_what_shows_to_be_broken_at_the_very_end_is_written_anew(filled: Path) -> None:
    async with keeping(filled) as writer:
        await put(writer, late=None)
        run(filled, "DROP TABLE names")
    async with keeping(filled) as writer:
        assert [file.file for file in take_out(writer.registry).files] == ["early"]
