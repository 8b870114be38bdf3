"""Every way to write, seen through a whole daemon: what is on disk is what is answered."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from discoveryd.client import Client
from tests.system.dropping import GOOD, Host, write
from tests.system.running import Daemon, until

LIMIT_BYTES = 1 << 20


def flat(name: str, **members: object) -> bytes:
    return json.dumps({"display_name": name} | members).encode()


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do this again and again, in a thread, while the body runs; fail if it ever fails."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def repeat() -> None:
        try:
            while not stop.is_set():
                action()
        except BaseException as fault:  # noqa: BLE001  # it is raised where it can be seen
            faults.append(fault)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if faults:
        raise faults[0]


@pytest.fixture
def observer(shared_daemon: Daemon) -> Iterator[Client]:
    """Give a connection of its own, to ask while the test writes."""
    with shared_daemon.client() as client:
        yield client


def test_half_a_card_is_served_when_the_other_half_comes(host: Host) -> None:
    """B01: without another touch, and with little said about it."""
    content = flat("slow")
    lines = len(host.daemon.log.splitlines())
    with (host.cards / "a.json").open("wb") as file:
        file.write(content[:9])
        file.flush()
        until(lambda: "a.json" in host.standings(), "half a card is known")
        assert host.standings() == {"a.json": "invalid"}
        assert host.workers("slow") is None
        file.write(content[9:])
    until(lambda: host.workers("slow") is not None, "the card is served once it is whole")
    said = host.daemon.log.splitlines()[lines:]
    assert len([line for line in said if "invalid" in line]) == 1


def test_a_served_card_that_is_truncated_and_rewritten_never_leaves(
    host: Host, observer: Client
) -> None:
    """B02: nor does another get its name in between."""
    content = flat("m", source_path="/one", instance="first")
    path = host.cards / "a.json"
    host.put("a", content)
    rival = host.put("rival", flat("other", aliases=["m"], source_path="/two"))
    assert rival.standing != "serving"
    served = host.workers("m")

    def look() -> None:
        assert [worker.key for worker in observer.resolve("m").workers] == served

    with meanwhile(look):
        for _ in range(100):
            with path.open("wb") as file:
                time.sleep(0.002)  # the writer's slowness, which is what is tested
                file.write(content)
    assert host.verdict_of(path).standing == "serving"
    look()


def test_a_large_file_that_grows_slowly_delays_nobody(host: Host) -> None:
    """B03."""
    with (host.cards / "big.json").open("wb") as file:
        for number in range(20):
            file.write(b" " * (1 << 18))
            file.flush()
            write(host.cards / f"{number}.json", flat(f"m{number}"))
            until(lambda name=f"m{number}": host.workers(name) is not None, "a small card")  # type: ignore[misc]  # a default argument
    verdict = host.verdict_of(host.cards / "big.json")
    assert verdict.reasons[0].rule == "too_large"
    assert f"{LIMIT_BYTES} bytes" in verdict.reasons[0].message


def test_the_largest_card_is_served_however_slowly_it_comes(host: Host) -> None:
    """B03."""
    content = flat("largest")
    with (host.cards / "a.json").open("wb") as file:
        for _ in range(15):
            file.write(b" " * (1 << 16))
            file.flush()
        file.write(content.rjust((1 << 16), b" "))
    until(lambda: host.workers("largest") is not None, "a card of one mebibyte")


def test_a_slow_copy_and_a_bad_card_keep_no_good_one_out(host: Host) -> None:
    """B04."""
    copy = [sys.executable, "-c", "import shutil, sys; shutil.copyfileobj(sys.stdin, sys.stdout)"]
    with (host.cards / "b.json").open("wb") as target:
        process = subprocess.Popen(copy, stdin=subprocess.PIPE, stdout=target)
    assert process.stdin is not None
    content = flat("b")
    process.stdin.write(content[:5])
    process.stdin.flush()
    (host.cards / "c.json").write_bytes(b"{]")
    write(host.cards / "d.json", flat("d"))
    until(lambda: host.workers("d") is not None, "the good card")
    process.communicate(content[5:])
    until(lambda: host.workers("b") is not None, "the copied card")
    assert host.standings() == {"b.json": "serving", "c.json": "invalid", "d.json": "serving"}


def test_a_backup_beside_a_card_is_none(host: Host) -> None:
    """B14, B15."""
    host.put("a", flat("m", url="http://127.0.0.1:1"))
    shutil.copy(host.cards / "a.json", host.cards / "a.json~")
    shutil.copy(host.cards / "a.json", host.cards / ".a.json.swp")
    (host.cards / ".#a.json").symlink_to("nobody@nowhere.4711")
    host.put("a", flat("m", url="http://127.0.0.1:2"))
    assert [worker.url for worker in host.client.resolve("m").workers] == ["http://127.0.0.1:2"]
    assert host.client.sync().standings == {"serving": 1}


def over(path: Path, content: bytes) -> None:
    write(path, content)


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(content)
        file.truncate()


def cp(path: Path, content: bytes) -> None:
    source = path.parent.parent / "source"
    source.write_bytes(content)
    subprocess.run(["cp", "-p", source, path], check=True)


def anew(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def linked(path: Path, content: bytes) -> None:
    beside = path.with_name(".beside")
    beside.write_bytes(content)
    path.unlink(missing_ok=True)
    path.hardlink_to(beside)
    beside.unlink()


def as_old(path: Path, content: bytes) -> None:
    """Keep size and mtime, as `rsync -t` may: contents here are of one size."""
    path.write_bytes(content)
    os.utime(path, ns=(10**18, 10**18))


@pytest.mark.parametrize("way", [over, in_place, cp, anew, linked, as_old])
def test_each_of_ten_versions_is_served(way: Callable[[Path, bytes], None], host: Host) -> None:
    """B18, B19, B26."""
    for version in range(10):
        way(host.cards / "a.json", flat(f"v{version}"))
        until(lambda name=f"v{version}": host.workers(name) is not None, "the version")  # type: ignore[misc]  # a default argument
        assert len(host.client.list().names) == 1


def test_what_is_no_card_comes_and_goes_without_effect(served: Host) -> None:
    """B22."""
    before = served.client.sync().cursor
    for name in ("x.txt", ".x.json"):
        (served.cards / name).write_bytes(GOOD["display_name"].encode())
        served.client.sync()
        (served.cards / name).unlink()
    assert served.client.sync().cursor == before
    (served.cards / "bad.json").write_bytes(b"{")
    served.client.sync()
    served.remove(served.cards / "bad.json")


def test_a_card_among_many_heartbeats_is_served(host: Host) -> None:
    """B23: and the heartbeats are no change."""
    for number in range(200):
        write(host.cards / f"beating{number}.json", flat(f"b{number}"))
    assert host.client.sync().standings == {"serving": 200}
    before = host.client.sync().cursor
    beats = iter(range(1_000_000))

    def beat() -> None:
        os.utime(host.cards / f"beating{next(beats) % 200}.json")
        time.sleep(0.005)  # two hundred a second, which is what is tested

    with meanwhile(beat):
        for number in range(3):
            write(host.cards / f"new{number}.json", flat(f"n{number}"))
            until(lambda name=f"n{number}": host.workers(name) is not None, "the new card")  # type: ignore[misc]  # a default argument
    assert host.client.sync().cursor.revision == before.revision + 3


def characters_read(daemon: Daemon) -> int:
    lines = Path(f"/proc/{daemon.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_reading_cards_makes_the_daemon_read_nothing(host: Host) -> None:
    """B24."""
    padding = "x" * 50_000
    for number in range(100):
        write(host.cards / f"{number}.json", flat(f"m{number}", user_data=padding))
    before = host.client.sync().cursor
    once = 100 * len(padding)
    read = characters_read(host.daemon)
    for _ in range(10):
        for path in host.cards.iterdir():
            path.read_bytes()
    host.client.resolve("m1")
    # Less than all files once: what was written just now is not settled, and may be read again.
    assert characters_read(host.daemon) - read < 2 * once
    assert host.client.sync().cursor == before


def test_touches_equal_rewrites_and_idle_scans_are_no_revision(served: Host) -> None:
    """B25, B27."""
    before = served.client.sync().cursor
    path = served.cards / "good.json"
    lines = len(served.daemon.log.splitlines())
    for act in (
        lambda: os.utime(path),
        lambda: path.chmod(0o640),
        lambda: path.write_bytes(path.read_bytes()),
        lambda: write(path, path.read_bytes()),
    ):
        act()
        served.client.sync()
    for _ in range(10):
        served.client.sync()
    assert served.client.sync().cursor == before
    assert len(served.daemon.log.splitlines()) == lines


def test_a_burst_of_edits_leaves_one_worker_with_the_last(host: Host) -> None:
    """B28."""
    for edit in range(20):
        write(host.cards / "a.json", flat("m", url=f"http://127.0.0.1:{edit + 1}"))
    until(
        lambda: [worker.url for worker in host.client.workers().workers] == ["http://127.0.0.1:20"],
        "the last edit",
    )
