"""Where a directory lies, as the table of mounts tells it: B101, a private temporary directory.

The tables are as systemd 257 makes them, with names shortened.
"""

from pathlib import Path

import pytest

from discoveryd.daemon.disk import mounts
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.mounts import file_system_of, private_temporary
from tests.daemon.disk import Collector, card, following, replace

ROOT = "25 1 8:1 / {0} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
HOST_TMPFS = "30 25 0:28 / {0}/tmp rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,nr_inodes=1048576\n"
PRIVATE = (
    "90 25 8:1 {0}/tmp/systemd-private-0ab1-d-xY/tmp {0}/tmp rw shared:9 - ext4 /dev/sda1 rw\n"
)
PRIVATE_ON_TMPFS = "90 25 0:28 /systemd-private-0ab1-d-xY/tmp {0}/tmp rw - tmpfs tmpfs rw,size=9k\n"
PRIVATE_VAR = (
    "91 25 8:1 {0}/var/tmp/systemd-private-0ab1-d-zZ/tmp {0}/var/tmp rw - ext4 /dev/sda1 rw\n"
)
DISCONNECTED = (
    "92 25 0:50 /tmp {0}/tmp rw,nodev - tmpfs tmpfs rw,mode=700\n"
    "93 25 0:50 /var-tmp {0}/var/tmp rw,nodev - tmpfs tmpfs rw,mode=700\n"
)
DISCONNECTED_ALONE = "92 25 0:50 / {0}/tmp rw,nodev - tmpfs tmpfs rw,mode=700,size=1k\n"
BOUND = "95 90 8:1 {0}/tmp/a\\040store {0}/tmp/a\\040store rw - ext4 /dev/sda1 rw\n"
A_DIRECTORY_OF_A_TMPFS = "92 25 0:50 /tmp {0}/tmp rw,nodev - tmpfs tmpfs rw\n"


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a directory that takes the place of the root directory."""
    top = tmp_path.resolve()
    for name in ("tmp", "var/tmp", "srv"):
        (top / name).mkdir(parents=True)
    temporary = {b"%s/tmp" % bytes(top): b"/tmp", b"%s/var/tmp" % bytes(top): b"/var-tmp"}
    monkeypatch.setattr(mounts, "_TEMPORARY", temporary)
    return top


def mount(top: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    table = top / "mountinfo"
    table.write_text("".join(line.replace("{0}", str(top)) for line in (ROOT, *lines)))
    monkeypatch.setattr(mounts, "_MOUNTS", table)


@pytest.mark.parametrize(
    ("lines", "directory"),
    [
        ([PRIVATE], "tmp/cards"),
        ([PRIVATE], "tmp"),
        ([HOST_TMPFS, PRIVATE_ON_TMPFS], "tmp/cards"),
        ([PRIVATE_VAR], "var/tmp/cards"),
        ([DISCONNECTED], "tmp/cards"),
        ([DISCONNECTED], "var/tmp/cards"),
        ([HOST_TMPFS, DISCONNECTED_ALONE], "tmp/cards"),
        ([PRIVATE, BOUND], "tmp/another"),
    ],
)
def test_a_directory_in_a_temporary_directory_of_the_service_s_own_is_told(
    top: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], directory: str
) -> None:
    mount(top, monkeypatch, *lines)
    said = private_temporary(bytes(top / directory))
    assert said is not None
    assert "PrivateTmp=" in said
    assert f"into {top / directory}. Choose" in said
    assert "PrivateTmp=no in a drop-in" in said


@pytest.mark.parametrize(
    ("lines", "directory"),
    [
        ([], "tmp/cards"),
        ([HOST_TMPFS], "tmp/cards"),
        ([A_DIRECTORY_OF_A_TMPFS], "tmp/cards"),
        ([PRIVATE], "var/tmp/cards"),
        ([PRIVATE], "srv/cards"),
        ([PRIVATE], "tmpfiles"),
        ([PRIVATE, HOST_TMPFS], "tmp/cards"),
        ([PRIVATE, BOUND], "tmp/a store"),
        ([PRIVATE, BOUND], "tmp/a store/v1/mdc"),
    ],
)
def test_a_directory_that_others_see_too_is_not(
    top: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], directory: str
) -> None:
    mount(top, monkeypatch, *lines)
    assert private_temporary(bytes(top / directory)) is None


def test_a_link_into_one_is_told_too(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount(top, monkeypatch, PRIVATE)
    (top / "srv/cards").symlink_to(top / "tmp/cards")
    assert private_temporary(bytes(top / "srv/cards")) is not None


def test_without_a_table_nothing_is_told(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MOUNTS", top / "missing")
    assert private_temporary(bytes(top / "tmp/cards")) is None
    assert file_system_of(top.stat().st_dev) is None


def test_the_file_system_of_what_is_there_is_known(tmp_path: Path) -> None:
    proc = Path("/proc").stat()
    assert file_system_of(proc.st_dev) == "proc"
    assert file_system_of(0xFFFF_FFFF) is None
    assert tmp_path.is_dir()


@pytest.mark.parametrize("exists", [True, False])
async def test_it_is_a_problem_of_the_directory_whether_that_is_there_or_not(
    top: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, exists: bool
) -> None:
    mount(top, monkeypatch, PRIVATE)
    cards = top / "tmp/cards"
    if exists:
        cards.mkdir()
        replace(cards / "a.json", card("a"))
    directory = DropDirectory(cards, Collector())
    async with following(directory):
        problem = directory.status.problem or ""
        assert f"into {cards}. Choose" in problem
        assert ("waiting for directory" in problem) != exists
    assert [r.levelname for r in caplog.records if "PrivateTmp=" in r.getMessage()] == ["WARNING"]
