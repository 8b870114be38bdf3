import os
from pathlib import Path

import pytest

from discoveryd.core.batch import Invalid
from discoveryd.daemon import folder as folder_module
from discoveryd.daemon import reading
from discoveryd.daemon.folder import Folder
from discoveryd.daemon.reading import Look, Stamp, is_card_name
from tests.daemon.disk import card

OLD_NS = 10**18


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(os.fsencode(tmp_path), is_card_name)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the names that are read, as they are."""
    names: list[bytes] = []

    def counting(dir_fd: int, name: bytes, directory: str) -> Look:
        names.append(name)
        return reading.look(dir_fd, name, directory)

    monkeypatch.setattr(folder_module, "look", counting)
    return names


def scan(folder: Folder) -> dict[bytes, Look]:
    return folder.look((), everything=True).looks


def freeze(monkeypatch: pytest.MonkeyPatch, ctime_ns: int) -> None:
    """Let all files have one stamp for ever, as if the clock stood still."""
    monkeypatch.setattr(Stamp, "of", lambda status: Stamp(1, status.st_size, OLD_NS, ctime_ns))


def test_a_scan_finds_what_is_new_changed_and_gone(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    (tmp_path / "b.json").write_bytes(b"1")
    assert scan(folder).keys() == {b"a.json", b"b.json"}
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_bytes(b"22")
    (tmp_path / "c.json").write_bytes(b"3")
    found = {name: seen.content for name, seen in scan(folder).items()}
    assert found == {b"a.json": None, b"b.json": b"22", b"c.json": b"3"}
    assert len(folder) == 2
    assert scan(folder) == {}


def test_settled_files_are_not_read_again(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SETTLING_NS", -(10**12))
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    scan(folder)
    assert reads == [b"a.json"]


def test_a_young_stamp_is_not_believed(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze(monkeypatch, ctime_ns=2**62)
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    (tmp_path / "a.json").write_bytes(b"2")
    assert scan(folder)[b"a.json"].content == b"2"
    assert reads == [b"a.json"] * 2


def test_a_doubted_file_is_read_at_each_scan_until_it_changes(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze(monkeypatch, ctime_ns=OLD_NS)
    (tmp_path / "a.json").write_bytes(b"\0")
    scan(folder)
    folder.doubt(b"a.json")
    assert scan(folder) == {}
    (tmp_path / "a.json").write_bytes(b"2")
    assert scan(folder)[b"a.json"].content == b"2"
    scan(folder)
    assert reads == [b"a.json"] * 3


def test_a_touch_is_no_news_but_its_stamp_is_kept(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"1")
    scan(folder)
    os.utime(file, ns=(5, 5))
    assert scan(folder) == {}
    stamp = folder.stamp(b"a.json")
    assert stamp is not None
    assert stamp.mtime_ns == 5


def test_equal_bytes_in_another_file_are_no_news(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    (tmp_path / "beside").write_bytes(b"1")
    (tmp_path / "beside").rename(tmp_path / "a.json")
    assert folder.look({b"a.json"}, everything=False).looks == {}


def test_another_owner_is_news(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    look = reading.look
    monkeypatch.setattr(
        folder_module, "look", lambda *where: look(*where)._replace(owner=4_000_000_000)
    )
    seen = folder.look({b"a.json"}, everything=False).looks
    assert seen[b"a.json"].owner == 4_000_000_000


def test_a_look_at_names_takes_only_names_that_count(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1")
    scan(folder)
    (tmp_path.parent / "outside.json").write_bytes(b"1")
    names = {b"a.txt", b"../outside.json", b"no.json", b"a\0.json", b"x" * 400 + b".json"}
    assert folder.look(names, everything=False).looks == {}


def test_an_unreadable_file_is_retried_at_each_scan(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(card("m"))
    opened = os.open
    fault: list[OSError] = [OSError(24, "Too many open files")]

    def failing(
        path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if path == b"a.json" and fault:
            raise fault[0]
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", failing)
    content = scan(folder)[b"a.json"].content
    assert isinstance(content, Invalid)
    assert "too many open files" in content.reasons[0].message
    assert scan(folder) == {}
    fault.clear()
    assert scan(folder)[b"a.json"].content == card("m")


def test_a_missing_directory_has_no_files_and_says_so(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    (tmp_path / "a.json").unlink()
    tmp_path.rmdir()
    assert folder.look((), everything=False).looks == {b"a.json": reading.GONE}
    assert folder.identity is None
    assert folder.problem == f"waiting for directory {tmp_path}: it does not exist"
    tmp_path.mkdir()
    (tmp_path / "b.json").write_bytes(b"1")
    found = folder.look((), everything=False)
    assert found.looks.keys() == {b"b.json"}
    assert (found.scanned, found.strange) == (True, True)
    assert folder.problem is None


def test_a_file_in_the_place_of_the_directory_is_waited_out(folder: Folder, tmp_path: Path) -> None:
    tmp_path.rmdir()
    tmp_path.write_bytes(b"")
    assert scan(folder) == {}
    assert folder.problem is not None
    assert "something else is there" in folder.problem
    tmp_path.unlink()


def test_another_directory_at_the_path_is_looked_at_whole(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    (tmp_path / "b.json").write_bytes(b"1")
    scan(folder)
    tmp_path.rename(tmp_path.with_name("moved"))
    tmp_path.mkdir()
    (tmp_path / "b.json").write_bytes(b"2")
    found = folder.look((), everything=False)
    assert {name: seen.content for name, seen in found.looks.items()} == {
        b"a.json": None,
        b"b.json": b"2",
    }
    assert found.strange


def test_a_directory_that_cannot_be_listed_changes_nothing(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)

    def refuse(path: bytes) -> int:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "open_directory", refuse)
        assert scan(folder) == {}
        assert len(folder) == 1
        assert folder.problem is not None
        assert "cannot be listed: permission denied" in folder.problem
        assert f"uid {os.geteuid()}" in folder.problem
    (tmp_path / "b.json").write_bytes(b"1")
    assert folder.look((), everything=False).looks.keys() == {b"b.json"}
    assert folder.problem is None


def test_a_name_that_is_not_utf8_is_a_problem_even_where_it_does_not_count(
    folder: Folder, tmp_path: Path
) -> None:
    strange = tmp_path / os.fsdecode(b"\xff.tmp")
    strange.write_bytes(b"")
    assert scan(folder) == {}
    assert folder.problem is not None
    assert "\\xff.tmp is not UTF-8" in folder.problem
    strange.unlink()
    scan(folder)
    assert folder.problem is None


def test_a_stopped_folder_returns_early(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"1")
    folder.stop()
    assert folder.stopped
    assert scan(folder) == {}
