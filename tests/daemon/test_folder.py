import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discoveryd.core.batch import Invalid
from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.daemon.disk import folder as folder_module
from discoveryd.daemon.disk import reading
from discoveryd.daemon.disk.folder import Folder
from discoveryd.daemon.disk.reading import Look, Stamp, is_card_name, look, open_directory
from tests.daemon.disk import card

OLD_NS = 10**18


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(os.fsencode(tmp_path), is_card_name)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the names that are read, as they are."""
    names: list[bytes] = []

    def counting(dir_fd: int, name: bytes, directory: str, *, follow: bool) -> Look:
        names.append(name)
        return reading.look(dir_fd, name, directory, follow=follow)

    def counting_listed(dir_fd: int, name: bytes, stamp: Stamp) -> Look | None:
        seen = reading.read_listed(dir_fd, name, stamp)
        if seen is not None:
            names.append(name)
        return seen

    monkeypatch.setattr(folder_module, "look", counting)
    monkeypatch.setattr(folder_module, "read_listed", counting_listed)
    return names


def scan(folder: Folder) -> dict[bytes, Look]:
    return folder.look((), everything=True).looks


def freeze(monkeypatch: pytest.MonkeyPatch, ctime_ns: int) -> None:
    """Let all files have one stamp for ever, as if the clock stood still."""
    monkeypatch.setattr(Stamp, "of", lambda status: Stamp(1, 1, status.st_size, OLD_NS, ctime_ns))


@pytest.fixture
def no_rota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LEAST_TURN", 0)


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


def test_files_are_read_in_the_order_in_which_they_are_judged(
    folder: Folder, tmp_path: Path
) -> None:
    for name, mtime_ns in [("c", 1), ("b", 2), ("d", 2), ("a", 3)]:
        (tmp_path / f"{name}.json").touch()
        os.utime(tmp_path / f"{name}.json", ns=(0, mtime_ns))
    assert list(scan(folder)) == [b"c.json", b"b.json", b"d.json", b"a.json"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_scan_says_of_anything_what_a_look_says(tmp_path: Path, follow: bool) -> None:
    (tmp_path / "empty.json").touch()
    (tmp_path / "card.json").write_bytes(b"{}")
    (tmp_path / "largest.json").write_bytes(b" " * MAX_BYTES)
    (tmp_path / "one-more.json").write_bytes(b" " * (MAX_BYTES + 1))
    (tmp_path / "larger.json").write_bytes(b" " * (MAX_BYTES + 2))
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "link.json").symlink_to("card.json")
    os.mkfifo(tmp_path / "pipe.json")
    names = {os.fsencode(path.name) for path in tmp_path.iterdir()}
    folder = Folder(os.fsencode(tmp_path), is_card_name, follow_symlinks=follow)
    directory = open_directory(folder.path)
    try:
        looks = {name: look(directory, name, folder.display, follow=follow) for name in names}
    finally:
        os.close(directory)
    assert scan(folder) == looks


def test_a_file_that_changed_since_it_was_listed_is_looked_at_closely(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"{name}.json").write_bytes(b"1")
    listed = reading.scan

    def scan_and_change(*args: Any, **kwargs: Any) -> reading.Listing:
        listing = listed(*args, **kwargs)
        (tmp_path / "a.json").write_bytes(b"22")
        (tmp_path / "b.json").unlink()
        (tmp_path / "c.json").unlink()
        (tmp_path / "c.json").symlink_to("d.json")
        return listing

    monkeypatch.setattr(folder_module, "scan", scan_and_change)
    found = scan(folder)
    assert found.keys() == {b"a.json", b"c.json", b"d.json"}
    assert found[b"a.json"].content == b"22"
    assert isinstance(found[b"c.json"].content, Invalid)
    assert found[b"d.json"].content == b"1"


@pytest.mark.usefixtures("no_rota")
def test_settled_files_are_not_read_again(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SETTLING_NS", -(10**12))
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    scan(folder)
    assert reads == [b"a.json"]


@pytest.mark.usefixtures("no_rota")
def test_a_young_stamp_is_not_believed(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze(monkeypatch, ctime_ns=2**62)
    (tmp_path / "a.json").write_bytes(b"1")
    scan(folder)
    (tmp_path / "a.json").write_bytes(b"2")
    assert scan(folder)[b"a.json"].content == b"2"
    assert reads == [b"a.json"] * 2


@pytest.mark.usefixtures("no_rota")
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
        folder_module, "look", lambda *a, **b: look(*a, **b)._replace(owner=4_000_000_000)
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
    """B31."""
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


def test_settled_files_are_read_again_in_turn(
    folder: Folder, tmp_path: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write through mmap may leave the stamp as it is (B32, of a card that is valid already)."""
    freeze(monkeypatch, ctime_ns=OLD_NS)
    monkeypatch.setattr(folder_module, "LEAST_TURN", 2)
    for number in range(6):
        (tmp_path / f"{number}.json").write_bytes(b"1")
    scan(folder)
    (tmp_path / "3.json").write_bytes(b"2")
    found: dict[bytes, Look] = {}
    for _ in range(3):
        reads.clear()
        found |= scan(folder)
        assert len(reads) <= 2 + 1
    assert {name: seen.content for name, seen in found.items()} == {b"3.json": b"2"}


def test_a_directory_that_got_the_inode_of_the_one_before_is_another(tmp_path: Path) -> None:
    identities: set[folder_module.Identity] = set()
    for _ in range(5):
        (tmp_path / "cards").mkdir()
        directory = reading.open_directory(os.fsencode(tmp_path / "cards"))
        identities.add(folder_module.identity_of(directory))
        os.close(directory)
        (tmp_path / "cards").rmdir()
    assert len(identities) == 5


def test_a_directory_has_one_identity_whatever_happens_in_it(tmp_path: Path) -> None:
    def identity() -> folder_module.Identity:
        directory = reading.open_directory(os.fsencode(tmp_path))
        try:
            return folder_module.identity_of(directory)
        finally:
            os.close(directory)

    before = identity()
    (tmp_path / "a.json").write_bytes(b"1")
    tmp_path.chmod(0o700)
    assert identity() == before


@pytest.mark.parametrize(("mode", "fault"), [(0o777, True), (0o1777, False), (0o775, False)])
def test_a_directory_where_all_may_remove_all_is_a_problem(
    mode: int, fault: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(mode)
    folder = Folder(os.fsencode(tmp_path), is_card_name, shared=True)
    scan(folder)
    said = f"Let only owners do that: chmod +t {tmp_path}"
    assert (said in (folder.problem or "")) == fault
    tmp_path.chmod(0o1777)
    scan(folder)
    assert folder.problem is None


@pytest.fixture
def linked(tmp_path: Path) -> Folder:
    """Give a folder `links` in which links are followed; `files` lies beside it."""
    (tmp_path / "links").mkdir()
    (tmp_path / "files").mkdir()
    return Folder(os.fsencode(tmp_path / "links"), is_card_name, follow_symlinks=True)


def test_a_link_is_the_file_it_leads_to(linked: Folder, tmp_path: Path) -> None:
    """B48."""
    file = tmp_path / "files" / "real"
    file.write_bytes(b"1")
    (tmp_path / "links" / "a.json").symlink_to(file)
    assert scan(linked)[b"a.json"].content == b"1"
    assert scan(linked) == {}
    file.write_bytes(b"22")
    assert scan(linked)[b"a.json"].content == b"22"


def test_a_link_whose_file_goes_is_gone_and_then_told_to_lead_nowhere(
    linked: Folder, tmp_path: Path
) -> None:
    file = tmp_path / "files" / "real"
    file.write_bytes(b"1")
    (tmp_path / "links" / "a.json").symlink_to(file)
    scan(linked)
    file.unlink()
    assert scan(linked) == {b"a.json": reading.GONE}
    content = scan(linked)[b"a.json"].content
    assert isinstance(content, Invalid)
    assert content.reasons[0].found == "a symbolic link to nothing"
    assert scan(linked) == {}
    file.write_bytes(b"2")
    assert scan(linked)[b"a.json"].content == b"2"
    (tmp_path / "links" / "a.json").unlink()
    assert scan(linked) == {b"a.json": reading.GONE}


def test_where_the_link_is_turned_that_all_lead_through_all_is_looked_at(
    linked: Folder, tmp_path: Path
) -> None:
    """B46, B47: as Kubernetes mounts and updates a directory."""
    links = tmp_path / "links"
    for generation in ("..1", "..2"):
        (links / generation).mkdir()
        for name in ("a.json", "b.json"):
            (links / generation / name).write_bytes(generation.encode())
    (links / "..data").symlink_to("..1")
    for name in ("a.json", "b.json"):
        (links / name).symlink_to(f"..data/{name}")
    assert {name: seen.content for name, seen in scan(linked).items()} == {
        b"a.json": b"..1",
        b"b.json": b"..1",
    }
    (links / "..data_tmp").symlink_to("..2")
    (links / "..data_tmp").rename(links / "..data")
    found = linked.look({b"..data_tmp", b"..data"}, everything=False)
    assert {name: seen.content for name, seen in found.looks.items()} == {
        b"a.json": b"..2",
        b"b.json": b"..2",
    }
    assert found.strange


def test_names_that_are_no_links_cause_no_scan(linked: Folder, tmp_path: Path) -> None:
    (tmp_path / "links" / ".a.json.tmp").write_bytes(b"1")
    scan(linked)
    names = {b".a.json.tmp", b".gone", b"a\0b"}
    assert not linked.look(names, everything=False).scanned


def test_every_name_matters_where_links_are_followed(linked: Folder, folder: Folder) -> None:
    assert linked.heeds(b"..data")
    assert not folder.heeds(b"..data")
    assert folder.heeds(b"a.json")


class Racing:
    """Looks at files, and lets something happen between one look and the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.then: dict[bytes, Callable[[], object]] = {}
        self.looked_at: list[bytes] = []
        monkeypatch.setattr(folder_module, "look", self._look)
        monkeypatch.setattr(folder_module, "read_listed", self._read_listed)

    def _look(self, dir_fd: int, name: bytes, directory: str, *, follow: bool) -> Look:
        seen = reading.look(dir_fd, name, directory, follow=follow)
        self.looked_at.append(name)
        self.then.pop(name, int)()
        return seen

    def _read_listed(self, dir_fd: int, name: bytes, stamp: Stamp) -> Look | None:
        seen = reading.read_listed(dir_fd, name, stamp)
        if seen is not None:
            self.looked_at.append(name)
            self.then.pop(name, int)()
        return seen


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> Racing:
    return Racing(monkeypatch)


def come(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"1")


def test_what_came_before_an_arrival_and_was_looked_at_too_soon_is_of_the_same_batch(
    folder: Folder, tmp_path: Path, racing: Racing
) -> None:
    """B69: both were heard of, since their forerunners went."""
    scan(folder)
    racing.then[b"a.json"] = lambda: come(tmp_path, "a.json", "b.json")
    looks = folder.look((b"a.json", b"b.json"), everything=False).looks
    assert {name: seen.content for name, seen in looks.items()} == {
        b"a.json": b"1",
        b"b.json": b"1",
    }


def test_what_came_before_that_again_is_of_the_same_batch_too(
    folder: Folder, tmp_path: Path, racing: Racing
) -> None:
    scan(folder)

    def later() -> None:
        come(tmp_path, "c.json")
        racing.then[b"a.json"] = lambda: come(tmp_path, "a.json", "b.json")

    racing.then[b"b.json"] = later
    looks = folder.look((b"a.json", b"b.json", b"c.json"), everything=False).looks
    assert looks.keys() == {b"a.json", b"b.json", b"c.json"}


def test_what_came_before_an_arrival_and_was_not_listed_yet_is_of_the_same_batch(
    folder: Folder, tmp_path: Path, racing: Racing
) -> None:
    """B69: a listing may have passed a place in the directory before something was put there."""
    scan(folder)
    come(tmp_path, "b.json")
    racing.then[b"b.json"] = lambda: come(tmp_path, "a.json", "no-card")
    assert scan(folder).keys() == {b"a.json", b"b.json"}


def test_files_that_never_stop_coming_end_no_batch(
    folder: Folder, tmp_path: Path, racing: Racing
) -> None:
    scan(folder)
    numbers = iter(range(1000))

    def another() -> None:
        name = f"{next(numbers)}.json"
        come(tmp_path, name)
        racing.then[name.encode()] = another

    another()
    assert 1 < len(scan(folder)) < 10


def test_names_that_bring_nothing_new_are_looked_at_once(
    folder: Folder, tmp_path: Path, racing: Racing
) -> None:
    come(tmp_path, "a.json")
    scan(folder)
    racing.looked_at.clear()
    folder.look((b"a.json", b"b.json"), everything=False)
    assert racing.looked_at == [b"a.json", b"b.json"]
