import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.daemon.disk.bell import Bell

SOON = 10.0
"""Seconds within which it rings, on a busy machine."""

NEVER = 0.05
"""Seconds for which it must be silent."""


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Bell]:
    bell = bell_of(tmp_path)
    yield bell
    bell.close()


def bell_of(directory: Path) -> Bell:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return Bell(descriptor)
    finally:
        os.close(descriptor)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def write(path: Path) -> None:
    path.write_bytes(b"2")


def rename(path: Path) -> None:
    path.rename(path.with_name("b"))


@pytest.mark.parametrize("happen", [write, rename, os.utime, Path.unlink])
def test_it_rings_for_whatever_changes_until_it_is_silenced(
    happen: Callable[[Path], None], tmp_path: Path, bell: Bell
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert bell.wait(SOON)
    assert not bell.silence()
    assert not bell.wait(NEVER)
    happen(tmp_path / "a")
    assert bell.wait(SOON)
    assert bell.wait(SOON)
    bell.silence()
    assert not bell.wait(NEVER)


def test_it_does_not_ring_for_readers(tmp_path: Path, bell: Bell) -> None:
    (tmp_path / "a").write_bytes(b"1")
    bell.silence()
    assert (tmp_path / "a").read_bytes() == b"1"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert not bell.wait(NEVER)


def test_it_rings_for_the_directory_it_lies_on_wherever_that_goes(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    bell = bell_of(here)
    there = here.rename(tmp_path / "there")
    assert bell.wait(SOON)
    bell.silence()
    write(there / "a")
    assert bell.wait(SOON)
    bell.close()


def test_it_says_that_more_happened_than_the_kernel_keeps(tmp_path: Path, bell: Bell) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write(path)
    assert not bell.silence()
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))
    for _ in range(most):
        for path in paths:
            os.utime(path)
    assert bell.silence()
    assert not bell.silence()


def test_who_waits_is_woken_and_does_not_sleep_again(bell: Bell) -> None:
    waker = threading.Timer(0.02, bell.wake)
    waker.start()
    began = time.monotonic()
    assert bell.wait(60)
    bell.pause(60)
    assert bell.wait(60)
    assert time.monotonic() - began < 30
    waker.join()


def test_nothing_of_it_is_left_once_it_is_closed_or_lost(tmp_path: Path) -> None:
    before = descriptors()
    bell = bell_of(tmp_path)
    assert descriptors() == before + 2
    bell.close()
    bell.close()
    bell.wake()
    assert descriptors() == before
    bell = bell_of(tmp_path)
    gc.disable()
    try:
        del bell
        assert descriptors() == before
    finally:
        gc.enable()


@pytest.mark.usefixtures("bell")
def test_it_is_no_childs() -> None:
    """A process that is started must not keep it."""
    for each in Path("/proc/self/fd").iterdir():
        if "inotify" in _target(each):
            assert not os.get_inheritable(int(each.name))


def test_what_is_no_directory_has_none(tmp_path: Path) -> None:
    write(tmp_path / "a")
    before = descriptors()
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        Bell(descriptor)
    os.close(descriptor)
    assert descriptors() == before


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


@pytest.mark.parametrize("seconds", [0.0, 0.0003, 0.0025])
def test_a_pause_that_nobody_ends_is_no_shorter_than_asked(bell: Bell, seconds: float) -> None:
    began = time.monotonic()
    bell.pause(seconds)
    assert time.monotonic() - began >= seconds
