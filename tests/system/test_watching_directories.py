"""A drop directory through its life: missing, replaced, mounted over, closed, refused a watch."""

import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from discoveryd.client import Client
from discoveryd.interface import Directory
from tests.system.conftest import Start
from tests.system.dropping import GOOD, write
from tests.system.running import Daemon, until, without

FORGETFUL = ["--state", "none"]


@pytest.fixture
def cards(root: Path) -> Path:
    (directory := root / "cards").mkdir()
    return directory


def alone(root: Path) -> list[str]:
    """Return the arguments of a daemon with the one drop directory."""
    return ["--cards", str(root / "cards"), "--socket", str(root / "s"), *FORGETFUL]


def named(number: int) -> dict[str, str]:
    return {"display_name": f"m{number}"}


def directory_of(client: Client) -> Directory:
    (directory,) = client.status().directories
    return directory


def names(client: Client) -> list[str]:
    return sorted(line.name for line in client.list().names)


def wait_for_names(client: Client, *expected: str) -> None:
    until(lambda: names(client) == sorted(expected), f"the names are {expected}")


def wait_healthy(client: Client) -> None:
    until(lambda: client.status().healthy, "the daemon is healthy")


def test_a_directory_that_comes_later_is_followed(root: Path, start: Start) -> None:
    """B40: also one whose parent goes and comes again."""
    cards = root / "parent" / "cards"
    daemon = start(["--cards", str(cards), "--socket", str(root / "s"), *FORGETFUL]).wait_ready()
    with daemon.client() as client:
        directory = directory_of(client)
        assert not directory.watching
        assert directory.problem == f"waiting for directory {cards}: it does not exist"
        for number in range(2):
            cards.mkdir(parents=True)
            write(cards / "a.json", named(number))
            wait_for_names(client, f"m{number}")
            wait_healthy(client)
            write(cards / "b.json", GOOD)
            wait_for_names(client, "good", f"m{number}")
            shutil.rmtree(cards.parent)
            wait_for_names(client)


NO_PRIVILEGES = (
    "setpriv",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--inh-caps",
    "-all",
)


@pytest.fixture
def humble(root: Path, cards: Path, start: Start) -> Iterator[Daemon]:
    """Give a daemon that may read what modes allow, as an ordinary user's."""
    yield start(alone(root), prefix=without(*NO_PRIVILEGES)).wait_ready()
    cards.chmod(0o700)


def test_a_directory_below_that_is_closed_harms_nothing(cards: Path, humble: Daemon) -> None:
    """B41."""
    (cards / "sub").mkdir(0)
    (cards / "sub.json").mkdir(0)
    write(cards / "good.json", GOOD)
    with humble.client() as client:
        wait_for_names(client, "good")
        assert client.sync().standings == {"serving": 1, "invalid": 1}
        assert client.status().healthy


def test_a_card_that_is_closed_for_a_while_is_served_when_it_opens(
    root: Path, cards: Path, humble: Daemon
) -> None:
    """B31: the event came when it could not be read; none comes when it can."""
    (root / "beside").write_bytes(b'{"display_name": "late"}')
    (root / "beside").chmod(0)
    (root / "beside").rename(cards / "a.json")
    with humble.client() as client:
        until(lambda: client.sync().standings == {"invalid": 1}, "the card is unreadable")
        (verdict,) = client.explain("a.json").verdicts
        assert verdict.reasons[0].rule == "unreadable"
        assert "permission denied" in verdict.reasons[0].message
        assert f"chmod a+r {cards / 'a.json'}" in verdict.reasons[0].message
        # Through another name in another directory: no event in this one.
        (root / "link").hardlink_to(cards / "a.json")
        (root / "link").chmod(stat.S_IRUSR)
        wait_for_names(client, "late")


def test_a_directory_that_is_closed_for_a_while_keeps_its_cards(
    cards: Path, humble: Daemon
) -> None:
    """B41."""
    write(cards / "good.json", GOOD)
    with humble.client() as client:
        wait_for_names(client, "good")
        cards.chmod(0)
        until(lambda: not client.status().healthy, "the directory is closed")
        assert "cannot be listed: permission denied" in (directory_of(client).problem or "")
        client.sync()
        assert names(client) == ["good"]
        cards.chmod(0o700)
        write(cards / "a.json", named(1))
        wait_for_names(client, "good", "m1")
        wait_healthy(client)


def test_a_directory_that_is_closed_at_the_start_is_followed_when_it_opens(
    root: Path, cards: Path, start: Start
) -> None:
    """B41."""
    write(cards / "good.json", GOOD)
    cards.chmod(0)
    try:
        daemon = start(alone(root), prefix=without(*NO_PRIVILEGES)).wait_ready()
        with daemon.client() as client:
            assert not client.status().healthy
            assert names(client) == []
            cards.chmod(0o700)
            wait_for_names(client, "good")
            wait_healthy(client)
            assert directory_of(client).watching
    finally:
        cards.chmod(0o700)


def limited(limit: str, amount: int) -> list[str]:
    """Return a command that runs another in a user namespace with this limit of inotify's."""
    script = f'echo {amount} > /proc/sys/user/{limit} && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "sh", "-c", script, "limited"]


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        ("max_inotify_instances", "fs.inotify.max_user_instances"),
        ("max_inotify_watches", "fs.inotify.max_user_watches"),
    ],
)
def test_without_inotify_it_polls_until_it_gets_some(
    limit: str, advice: str, root: Path, cards: Path, start: Start
) -> None:
    """B43, B44."""
    prefix = limited(limit, 0)
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: no user namespace with limits of its own here: {tried.stderr}")
    write(cards / "good.json", GOOD)
    daemon = start(alone(root), prefix=prefix).wait_ready()
    with daemon.client() as client:
        assert names(client) == ["good"]
        directory = directory_of(client)
        assert (directory.backend, directory.watching) == ("polling", False)
        assert directory.rescan_seconds == 0.5
        assert f"sysctl {advice}" in (directory.problem or "")
        assert f"sysctl {advice}" in daemon.log
        for number in range(3):
            write(cards / "a.json", named(number))
            wait_for_names(client, "good", f"m{number}")
        enter = ["nsenter", "--user", "--preserve-credentials", "--target", str(daemon.process.pid)]
        raise_limit = f"echo 100 > /proc/sys/user/{limit}"
        subprocess.run([*enter, "sh", "-c", raise_limit], check=True)
        wait_healthy(client)
        directory = directory_of(client)
        assert (directory.backend, directory.watching) == ("native", True)
        write(cards / "a.json", named(7))
        wait_for_names(client, "good", "m7")


def test_what_is_mounted_over_the_directory_is_what_counts(
    root: Path, cards: Path, start: Start
) -> None:
    """B45: and it can be unmounted under the daemon's eyes."""
    prefix = ["unshare", "--mount", "--map-root-user", "--user"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: no mount namespace of one's own here: {tried.stderr}")
    (other := root / "other").mkdir()
    write(cards / "below.json", {"display_name": "below"})
    write(other / "above.json", {"display_name": "above"})
    daemon = start(alone(root), prefix=prefix).wait_ready()
    inside = ["nsenter", "--user", "--mount", "--preserve-credentials"]
    inside += ["--target", str(daemon.process.pid)]
    with daemon.client() as client:
        assert names(client) == ["below"]
        subprocess.run([*inside, "mount", "--bind", other, cards], check=True)
        wait_for_names(client, "above")
        write(other / "after.json", {"display_name": "after"})
        wait_for_names(client, "above", "after")
        wait_healthy(client)
        subprocess.run([*inside, "umount", cards], check=True)
        wait_for_names(client, "below")
        write(cards / "again.json", {"display_name": "again"})
        wait_for_names(client, "again", "below")
        wait_healthy(client)


def test_a_directory_swapped_for_another_is_what_the_path_says(
    root: Path, cards: Path, start: Start
) -> None:
    """B38: by a rename each, with nothing in between."""
    daemon = start(alone(root)).wait_ready()
    with daemon.client() as client:
        for number in range(5):
            (fresh := root / f"fresh{number}").mkdir()
            write(fresh / f"{number}.json", named(number))
            cards.rename(root / f"old{number}")
            fresh.rename(cards)
            wait_for_names(client, f"m{number}")
            write(root / f"old{number}" / "stray.json", {"display_name": "stray"})
        client.sync()
        assert names(client) == ["m4"]
        wait_healthy(client)


def test_what_happens_below_the_directory_is_nobodys_business(
    root: Path, cards: Path, start: Start
) -> None:
    """B49."""
    (cards / "sub").mkdir()
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            path = cards / "sub" / f"{number % 500}.json"
            path.write_bytes(b'{"display_name": "below"}')
            number += 1

    daemon = start(alone(root)).wait_ready()
    with daemon.client() as client:
        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for number in range(5):
                write(cards / "a.json", named(number))
                wait_for_names(client, f"m{number}")
        finally:
            stop.set()
            thread.join()
        assert directory_of(client).files == 1


def test_a_directory_where_all_may_remove_all_is_a_problem(
    root: Path, cards: Path, start: Start
) -> None:
    cards.chmod(0o777)
    with start(alone(root)).wait_ready().client() as client:
        (problem,) = client.status().problems
        assert problem.endswith(f"Let only owners do that: chmod +t {cards}")
        cards.chmod(0o1777)
        client.sync()
        assert client.status().healthy


def test_cards_written_while_the_daemon_starts_are_all_there(
    root: Path, cards: Path, start: Start
) -> None:
    """B35, B36: also where one is replaced between listing and watching."""
    stop = threading.Event()
    written = 0

    def keep_writing() -> None:
        nonlocal written
        while not stop.wait(0.001):
            write(cards / f"{written}.json", named(written))
            changing = cards / "changing.json"
            changing.unlink(missing_ok=True)
            changing.write_bytes(b'{"display_name": "c%d"}' % written)
            written += 1

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        daemon = start(alone(root)).wait_ready()
        until(lambda: written > 200, "enough is written")
    finally:
        stop.set()
        thread.join()
    with daemon.client() as client:
        expected = {f"m{number}" for number in range(written)} | {f"c{written - 1}"}
        until(lambda: set(names(client)) == expected, "every card is served")


def test_names_of_any_bytes_are_served_and_the_watch_lives_on(
    root: Path, cards: Path, start: Start
) -> None:
    daemon = start(alone(root)).wait_ready()
    with daemon.client() as client:
        write(cards / "ü \n\t\x7f.json", {"display_name": "a"})
        wait_for_names(client, "a")
        strange = cards / os.fsdecode(b"\xff\xfe.json")
        strange.write_bytes(b'{"display_name": "b"}')
        wait_for_names(client, "a", "b")
        write(cards / "c.json", {"display_name": "c"})
        wait_for_names(client, "a", "b", "c")
        assert "is not UTF-8" in (directory_of(client).problem or "")
        strange.unlink()
        wait_for_names(client, "a", "c")
