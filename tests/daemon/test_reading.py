import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from discoveryd.core.batch import Invalid
from discoveryd.core.card import Card
from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.core.verdict import Reason
from discoveryd.daemon.disk import reading
from discoveryd.daemon.disk.reading import (
    Stamp,
    is_card_name,
    open_directory,
    read_card,
    read_directory,
)
from tests.daemon.disk import card


def invalid(directory: Path, name: str = "x.json") -> Invalid:
    (sighting,) = (s for s in read_directory(directory) if s.file.endswith(f"/{name}"))
    assert isinstance(sighting.found, Invalid)
    return sighting.found


@pytest.mark.parametrize("name", [b"a.json", b"\xff.json", b"x.tmp.json", b"org%2Fmodel.json"])
def test_a_name_that_ends_in_json_counts(name: bytes) -> None:
    """B16, B17."""
    assert is_card_name(name)


@pytest.mark.parametrize(
    "name",
    [
        b".a.json", b".#a.json", b"#a.json#", b".a.json.swp", b"4913", b"a.json~", b"a.json.bak",
        b".nfs000", b"a.json.Ab12Cd", b"a.tmp", b".json", b"json", b"", b"../a.json", b"s/a.json",
        b"a\0.json", b"a.JSON",
    ],
)  # fmt: skip
def test_any_other_name_is_ignored(name: bytes) -> None:
    """B14."""
    assert not is_card_name(name)


def test_a_card_is_read_with_its_owner_and_times(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(card("m"))
    directory = open_directory(os.fsencode(tmp_path))
    try:
        change = read_card(directory, str(tmp_path), b"a.json")
    finally:
        os.close(directory)
    assert isinstance(change.sighting.found, Card)
    assert change.sighting.found.display_name == "m"
    assert change.sighting.found.key.instance == "a"
    assert change.sighting.file == str(file)
    assert change.sighting.owner == os.getuid()
    assert change.sighting.mtime_ns == file.stat().st_mtime_ns
    assert change.stamp == Stamp.of(file.stat())


def test_a_card_may_have_any_name_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "draft.txt").write_bytes(card("m"))
    directory = open_directory(os.fsencode(tmp_path))
    try:
        change = read_card(directory, str(tmp_path), b"draft.txt")
        gone = read_card(directory, str(tmp_path), b"nothing")
    finally:
        os.close(directory)
    assert isinstance(change.sighting.found, Card)
    assert gone.sighting.found is None


def test_only_card_files_of_a_directory_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(card("m"))
    (tmp_path / "a.json~").write_bytes(card("old"))
    (tmp_path / "bad.json").write_bytes(b"{")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.json").write_bytes(card("b"))
    sightings = {Path(s.file).name: s.found for s in read_directory(tmp_path)}
    assert sightings.keys() == {"a.json", "bad.json"}
    assert isinstance(sightings["bad.json"], Invalid)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_directory(tmp_path / "no")


def test_a_pipe_is_invalid_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    reason = invalid(tmp_path).reasons[0]
    assert (reason.rule, reason.found) == ("not_a_file", "a named pipe")
    assert str(tmp_path / "x.json") in reason.message


def test_a_directory_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    assert invalid(tmp_path).reasons[0].found == "a directory"


def test_a_socket_is_invalid() -> None:
    with tempfile.TemporaryDirectory() as short:
        path = Path(short) / "x.json"
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(path))
            assert invalid(path.parent).reasons[0].found == "a socket"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("/dev/zero")
    reason = invalid(tmp_path).reasons[0]
    assert reason.rule == "symbolic_link"
    assert "is a symbolic link" in reason.message


def test_a_link_to_nothing_is_invalid_too(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("nowhere")
    assert invalid(tmp_path).reasons[0].rule == "symbolic_link"


def test_a_file_that_turns_into_a_link_before_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(card("secret"))
    (tmp_path / "x.json").write_bytes(card("m"))
    opened = os.open

    def swap(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"x.json":
            (tmp_path / "x.json").unlink()
            (tmp_path / "x.json").symlink_to("secret")
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    assert invalid(tmp_path).reasons[0].rule == "unreadable"


def test_a_huge_sparse_file_is_refused_unread(tmp_path: Path) -> None:
    """B13."""
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(8 << 30)
    reason = invalid(tmp_path).reasons[0]
    assert reason.rule == "too_large"
    assert str(MAX_BYTES) in reason.message


def test_the_largest_card_is_read(tmp_path: Path) -> None:
    content = card("m")
    (tmp_path / "x.json").write_bytes(content + b" " * (MAX_BYTES - len(content)))
    (sighting,) = read_directory(tmp_path)
    assert isinstance(sighting.found, Card)


def test_a_file_without_permission_is_unreadable_and_the_reason_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.json").write_bytes(card("m"))
    opened = os.open

    def refuse(
        path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if path == b"x.json":
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    reason = invalid(tmp_path).reasons[0]
    assert reason.rule == "unreadable"
    assert "permission denied" in reason.message
    assert f"chmod a+r {tmp_path / 'x.json'}" in reason.message


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(card("old"))
    read = os.read
    writes = [card("newer and longer")]

    def write_meanwhile(fd: int, length: int) -> bytes:
        content = read(fd, length)
        if writes:
            file.write_bytes(writes.pop())
        return content

    monkeypatch.setattr(os, "read", write_meanwhile)
    (sighting,) = read_directory(tmp_path)
    assert isinstance(sighting.found, Card)
    assert sighting.found.display_name == "newer and longer"


def test_a_file_that_never_stands_still_is_passed_on_unsettled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b"{")
    read = os.read
    reads = 0

    def write_meanwhile(fd: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        content = read(fd, length)
        with file.open("ab") as more:
            more.write(b" ")
        return content

    directory = open_directory(os.fsencode(tmp_path))
    monkeypatch.setattr(os, "read", write_meanwhile)
    try:
        seen = reading.look(directory, b"x.json", str(tmp_path))
    finally:
        os.close(directory)
    assert isinstance(seen.content, bytes)
    assert seen.content.startswith(b"{")
    assert not seen.settled
    assert reads < 10


def test_a_name_too_long_to_exist_is_of_no_file(tmp_path: Path) -> None:
    directory = open_directory(os.fsencode(tmp_path))
    try:
        assert reading.look(directory, b"x" * 5000 + b".json", str(tmp_path)) == reading.GONE
    finally:
        os.close(directory)


def test_names_that_are_not_utf8_are_read_and_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.json")).write_bytes(card("m"))
    (sighting,) = read_directory(tmp_path)
    assert sighting.file == f"{tmp_path}/\\xff.json"
    assert isinstance(sighting.found, Card)


def test_a_device_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_bytes(b"")
    statted = os.stat

    def as_device(path: bytes, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        status = list(statted(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks))
        return os.stat_result([stat.S_IFCHR | 0o666, *status[1:]])

    directory = open_directory(os.fsencode(tmp_path))
    monkeypatch.setattr(os, "stat", as_device)
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("it was opened"))
    try:
        seen = reading.look(directory, b"x.json", str(tmp_path))
    finally:
        os.close(directory)
    assert isinstance(seen.content, Invalid)
    assert seen.content.reasons[0].found == "a character device"


def through(directory: Path, name: str = "x.json") -> reading.Look:
    """Look at what a link leads to."""
    fd = open_directory(os.fsencode(directory))
    try:
        return reading.look(fd, os.fsencode(name), str(directory), follow=True)
    finally:
        os.close(fd)


def reason_of(seen: reading.Look) -> Reason:
    assert isinstance(seen.content, Invalid)
    return seen.content.reasons[0]


def test_a_link_is_followed_where_that_is_asked_for(tmp_path: Path) -> None:
    """B48."""
    file = tmp_path / "real"
    file.write_bytes(card("m"))
    (tmp_path / "x.json").symlink_to("real")
    seen = through(tmp_path)
    assert seen.content == card("m")
    assert seen.stamp == Stamp.of(file.stat())
    assert seen.linked
    assert not seen.dangling


def test_a_followed_card_belongs_to_who_placed_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").write_bytes(card("m"))
    (tmp_path / "x.json").symlink_to("real")
    statted = os.stat

    def of_another(path: bytes, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        status = list(statted(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks))
        return os.stat_result([*status[:4], 4711, *status[5:]])

    monkeypatch.setattr(os, "stat", of_another)
    assert through(tmp_path).owner == 4711


def test_a_file_itself_is_read_the_same_where_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(card("m"))
    seen = through(tmp_path)
    assert (seen.content, seen.linked) == (card("m"), False)


@pytest.mark.parametrize(
    ("target", "found"), [("/dev/zero", "a character device"), (".", "a directory")]
)
def test_a_link_to_what_is_no_file_is_refused_unread(
    target: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13."""
    (tmp_path / "x.json").symlink_to(target)
    monkeypatch.setattr(os, "read", lambda *_: pytest.fail("it was read"))
    reason = reason_of(through(tmp_path))
    assert (reason.rule, reason.found) == ("not_a_file", found)


def test_a_link_to_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x.json").symlink_to("pipe")
    assert reason_of(through(tmp_path)).found == "a named pipe"


def test_a_link_that_is_turned_while_it_is_followed_leads_to_one_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").write_bytes(card("m"))
    (tmp_path / "x.json").symlink_to("real")
    opened = os.open

    def turn(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = opened(path, flags, mode, dir_fd=dir_fd)
        if path == b"x.json":
            (tmp_path / "x.json").unlink()
            (tmp_path / "x.json").symlink_to("/dev/zero")
        return fd

    monkeypatch.setattr(os, "open", turn)
    assert through(tmp_path).content == card("m")


def test_a_link_to_nothing_is_told_apart_from_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("nowhere")
    seen = through(tmp_path)
    assert seen.dangling
    assert reason_of(seen).found == "a symbolic link to nothing"
    assert not through(tmp_path, "no.json").dangling


def test_links_in_a_circle_are_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("y.json")
    (tmp_path / "y.json").symlink_to("x.json")
    reason = reason_of(through(tmp_path))
    assert reason.rule == "unreadable"
    assert "symbolic links" in reason.message


def test_what_claims_to_be_empty_and_never_ends_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: as files in /proc, or one that grows as fast as it is read."""
    (tmp_path / "x.json").write_bytes(b"")
    lengths: list[int] = []

    def endless(_: int, length: int) -> bytes:
        lengths.append(length)
        return b" " * length

    directory = open_directory(os.fsencode(tmp_path))
    monkeypatch.setattr(os, "read", endless)
    try:
        seen = reading.look(directory, b"x.json", str(tmp_path))
    finally:
        os.close(directory)
    assert reason_of(seen).rule == "too_large"
    assert sum(lengths) <= 3 * (MAX_BYTES + 1)


def test_a_file_of_proc_says_nothing_bad_and_ends(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("/proc/self/status")
    content = through(tmp_path).content
    assert isinstance(content, bytes)
    assert 0 < len(content) <= MAX_BYTES


def test_a_scan_gives_links_the_stamps_of_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"1")
    (tmp_path / "x.json").symlink_to("real")
    (tmp_path / "nowhere.json").symlink_to("no")
    directory = open_directory(os.fsencode(tmp_path))
    try:
        followed = reading.scan(directory, follow=True).stamps
        plain = reading.scan(directory).stamps
    finally:
        os.close(directory)
    assert followed == {
        b"x.json": Stamp.of((tmp_path / "real").stat()),
        b"nowhere.json": None,
    }
    assert plain[b"x.json"] == Stamp.of((tmp_path / "x.json").lstat())
