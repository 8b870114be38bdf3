"""A restart changes no answer: nothing is won or lost by judging again.

Every daemon here is killed by SIGKILL, and the next one finds the directories and what the last one
wrote. Files are made to look older the later they came, so that a daemon which forgot would choose
otherwise. Covers B50 and B54 (state of old runs), B60 (a return after a restart), B69 and B75 (who
was first stays first), B87 (what a crash leaves behind).
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from discoveryd.interface import Cursor
from tests.system.conftest import Start
from tests.system.dropping import envelope, write
from tests.system.lives import Lives, flat, older
from tests.system.running import REPOSITORY, environment, until, without

SHARED = {"namespace": "ns", "component": "c", "source_path": "/models/s"}
"""Members of cards that meet on one endpoint."""

NO_PRIVILEGES = (
    "setpriv",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--inh-caps",
    "-all",
)


Live = Callable[..., Lives]


@pytest.fixture
def live(start: Start) -> Iterator[Live]:
    """Give a function that begins a host's life, as `Lives` does."""
    begun: list[Lives] = []

    def begin(arguments: list[str] | None = None, **told: Any) -> Lives:
        begun.append(Lives(start, arguments, **told))
        return begun[-1]

    yield begin
    for lives in begun:
        lives.client.close()


@pytest.fixture
def lives(live: Live) -> Lives:
    return live()


def watched(lives: Lives, since: Cursor) -> Any:
    """Return the first reply of a watch from that cursor."""
    replies = lives.client.watch(since)
    first = next(replies)
    replies.close()
    return first


def fill(lives: Lives) -> None:
    """Bring about every standing that content alone can have, and every way of serving."""
    expected = {
        "first": lives.put("first", aliases=["shared"], **SHARED),
        "second": lives.put("second", aliases=["shared"], **SHARED),
        "lora": lives.put("lora", lora={}, **SHARED | {"instance": "first"}),
        "orphan": lives.put("orphan", lora={}, **SHARED | {"instance": "nobody"}),
        "old": lives.put("old", display_name="group", component="g", context_length=1),
        "new": lives.put("new", display_name="group", component="g", context_length=2),
        "newer": lives.put("newer", display_name="group", component="g", context_length=3),
        "blocked": lives.put("blocked", display_name="shared", component="b"),
        "twin": lives.put("twin", display_name="other", component="g", instance="old"),
        "drains": lives.put("drains", accepting=False),
        "torn": lives.put("torn"),
        "edited": lives.put("edited"),
    }
    assert expected == {
        "first": "serving",
        "second": "refused",
        "lora": "serving",
        "orphan": "orphan",
        "old": "serving",
        "new": "standby",
        "newer": "standby",
        "blocked": "blocked",
        "twin": "duplicate",
        "drains": "serving",
        "torn": "serving",
        "edited": "serving",
    }
    lives.host.put("torn", b'{"display_name": "to')
    assert lives.put("edited", aliases=["shared"]) == "blocked"
    for age, name in enumerate(expected):
        if name != "edited":
            older(lives.cards / f"{name}.json", age)


def test_what_nothing_happened_to_is_answered_as_before(lives: Lives) -> None:
    fill(lives)
    before = lives.dump()
    for _ in range(3):
        lives.again()
        assert lives.dump() == before
        first = watched(lives, lives.cursor)
        assert not first.reset
        assert first.heartbeat


def test_a_good_end_keeps_the_same_as_a_kill(lives: Lives) -> None:
    fill(lives)
    before = lives.dump()
    lives.client.close()
    lives.daemon.stop()
    lives.begin()
    assert lives.dump() == before


def test_the_waiting_come_in_the_order_in_which_they_came_before(lives: Lives) -> None:
    fill(lives)
    lives.again()
    lives.host.remove(lives.cards / "old.json")
    assert lives.order("group") == ["new"]
    lives.again()
    assert lives.order("group") == ["new"]
    lives.host.remove(lives.cards / "new.json")
    assert lives.order("group") == ["newer"]
    assert lives.order("shared") == ["first"]
    lives.host.remove(lives.cards / "first.json")
    assert lives.order("shared") == ["second"]
    assert lives.order("lora") == []


def test_workers_stand_in_the_order_of_their_admission(lives: Lives) -> None:
    names = ["c", "a", "d", "b"]
    for age, name in enumerate(names):
        assert lives.put(name, display_name="m", component="c") == "serving"
        older(lives.cards / f"{name}.json", age)
    lives.host.remove(lives.cards / "a.json")
    lives.put("a", display_name="m", component="c")
    lives.again()
    assert lives.order("m") == ["c", "d", "b", "a"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_refused_edit_leaves_the_last_version_served(lives: Lives, when: str) -> None:
    lives.put("owner", aliases=["n"])
    lives.put("edited", labels={"version": "1"})
    if when == "before":
        assert lives.put("edited", aliases=["n"], labels={"version": "2"}) == "blocked"
        lives.again()
    else:
        with lives.killed():
            lives.write("edited", aliases=["n"], labels={"version": "2"})
    for _ in range(2):
        (worker,) = lives.client.resolve("edited").workers
        assert worker.labels == {"version": "1"}
        assert lives.order("n") == ["owner"]
        (verdict,) = lives.client.explain(file="edited.json").verdicts
        assert (verdict.standing, verdict.serves) == ("blocked", "previous")
        lives.again()
    lives.host.remove(lives.cards / "owner.json")
    (worker,) = lives.client.resolve("n").workers
    assert worker.labels == {"version": "2"}
    assert lives.order("edited") == ["edited"]


@pytest.mark.parametrize("content", [b"", b'{"display_name": "to', b"\xff" * 100])
def test_a_file_that_was_torn_meanwhile_serves_what_it_served(lives: Lives, content: bytes) -> None:
    lives.put("torn")
    with lives.killed():
        (lives.cards / "torn.json").write_bytes(content)
    assert lives.order("torn") == ["torn"]
    lives.again()
    assert lives.order("torn") == ["torn"]
    assert lives.put("torn", labels={"version": "2"}) == "serving"


def test_a_rolling_edit_goes_on_where_it_was(lives: Lives) -> None:
    group = {"display_name": "m", "component": "c"}
    for name in "abc":
        lives.put(name, context_length=1, **group)
    rival = lives.put("rival", context_length=3, **group)
    assert rival == "standby"
    assert lives.put("a", context_length=2, **group) == "standby"
    with lives.killed():
        lives.write("b", context_length=2, **group)
    lengths = {worker.context_length for worker in lives.client.resolve("m").workers}
    assert lengths == {1}
    assert lives.order("m") == ["a", "b", "c"]
    assert lives.put("c", context_length=2, **group) == "serving"
    lengths = {worker.context_length for worker in lives.client.resolve("m").workers}
    assert lengths == {2}
    assert lives.order("m") == ["a", "b", "c"]


def test_files_that_were_swapped_meanwhile_are_two_edits(lives: Lives) -> None:
    lives.put("a", display_name="m", aliases=["x"])
    lives.put("b", display_name="n", aliases=["y"])
    with lives.killed():
        lives.write("a", display_name="n", aliases=["y"])
        lives.write("b", display_name="m", aliases=["x"])
    assert (lives.order("x"), lives.order("y")) == (["b"], ["a"])
    assert lives.client.status().standings == {"serving": 2}


def test_files_that_exchanged_their_names_meanwhile_have_moved(lives: Lives) -> None:
    for age, name in enumerate("abc"):
        lives.put(name, display_name="m", component="c")
        older(lives.cards / f"{name}.json", age)
    keys = [worker.key for worker in lives.client.resolve("m").workers]
    with lives.killed():
        (lives.cards / "a.json").rename(lives.cards / "t")
        (lives.cards / "b.json").rename(lives.cards / "a.json")
        (lives.cards / "t").rename(lives.cards / "b.json")
        (lives.cards / "c.json").rename(lives.cards / "d.json")
    assert [worker.key for worker in lives.client.resolve("m").workers] == keys
    assert lives.order("m") == ["b", "a", "d"]


def test_watchers_are_told_what_changed_meanwhile_and_no_more(lives: Lives) -> None:
    for name in ("stays", "goes", "changes"):
        lives.put(name)
    assert lives.put("waits", aliases=["goes"]) == "blocked"
    cursor = lives.cursor
    with lives.killed():
        (lives.cards / "goes.json").unlink()
        lives.write("changes", labels={"version": "2"})
        lives.write("comes")
    first = watched(lives, cursor)
    assert first.cursor == Cursor(cursor.epoch, cursor.revision + 1)
    assert not first.reset
    assert {Path(w.file).stem for w in first.changed} == {"changes", "waits", "comes"}
    assert len(first.removed) == 1
    assert {name.name for name in first.names} == {"goes", "waits", "comes"}
    earlier = watched(lives, Cursor(cursor.epoch, cursor.revision - 1))
    assert earlier.reset
    assert len(earlier.changed) == len(lives.client.workers().workers)


def test_a_reboot_forgets_who_came_first(lives: Lives) -> None:
    assert lives.put("b", aliases=["m"]) == "serving"
    assert lives.put("a", aliases=["m"]) == "blocked"
    with lives.killed():
        for path in lives.cards.glob("*.json"):
            path.unlink()
    assert lives.client.status().standings == {}
    assert lives.client.list().names == ()
    assert lives.put("a", aliases=["m"]) == "serving"
    assert lives.put("b", aliases=["m"]) == "blocked"


@pytest.mark.parametrize("back", [False, True], ids=["gone", "replaced"])
def test_a_directory_that_is_another_one_now_counts_as_it_is(
    live: Live, root: Path, back: bool
) -> None:
    cards = root / "cards"
    cards.mkdir()
    lives = live(["--cards", str(cards), "--socket", str(root / "s")])
    lives.put("a")
    lives.put("b")
    with lives.killed():
        cards.rename(root / "away")
        if back:
            cards.mkdir()
            lives.write("b")
    assert [name.name for name in lives.client.list().names] == (["b"] if back else [])
    assert lives.client.status().healthy is back


def test_files_of_a_directory_that_cannot_be_listed_are_kept_until_it_can(live: Live) -> None:
    lives = live(prefix=without(*NO_PRIVILEGES))
    lives.put("a")
    lives.put("b")
    with lives.killed():
        (lives.cards / "b.json").unlink()
        lives.cards.chmod(0)
    try:
        assert [name.name for name in lives.client.list().names] == ["a", "b"]
        assert "cannot be listed" in lives.client.status().problems[0]
    finally:
        lives.cards.chmod(0o755)
    until(lambda: [name.name for name in lives.client.list().names] == ["a"], "b is gone")


def test_files_of_a_directory_that_is_not_followed_any_more_are_forgotten(
    live: Live, root: Path
) -> None:
    places = [root / "one", root / "two"]
    for place in places:
        place.mkdir()
        write(place / "a.json", flat(place.name))
    both = [part for place in places for part in ("--cards", str(place))]
    socket = ["--socket", str(root / "s")]
    lives = live([*both, *socket])
    assert len(lives.client.list().names) == 2
    lives.kill()
    lives = live(["--cards", str(places[1]), *socket])
    assert [name.name for name in lives.client.list().names] == ["two"]
    lives.kill()
    lives = live([*both, *socket])
    assert [name.name for name in lives.client.list().names] == ["two", "one"]


def test_the_operators_names_may_change_meanwhile(live: Live, root: Path) -> None:
    config = root / "config.toml"
    (root / "cards").mkdir()
    arguments = ["--config", str(config), "--cards", str(root / "cards")]
    config.write_text('socket = "s"\n[aliases]\nx = "a"\n')
    lives = live(arguments)
    lives.put("a")
    lives.put("y")
    assert lives.put("b", display_name="x") == "blocked"
    lives.kill()
    config.write_text('socket = "s"\n[aliases]\ny = "a"\n')
    lives.begin()
    assert lives.client.resolve("y").kind == "operator"
    assert lives.order("x") == ["b"]
    assert {v.file.rpartition("/")[2]: v.standing for v in lives.client.explain().verdicts} == {
        "y.json": "blocked"
    }


def test_a_dynamo_stores_cards_keep_their_places_too(lives: Lives) -> None:
    host = lives.host
    for number in (2, 1):
        card = {"display_name": f"m{number}", "aliases": ["x"], "source_path": "/s"}
        key = f"ns/c/e/{number:x}"
        host.put_in_store(key, envelope(key, card))
    before = lives.order("x"), host.standings()
    lives.again()
    assert (lives.order("x"), lives.host.standings()) == before
    assert len(before[0]) == 1
    with lives.killed():
        (host.mdc / before[0][0]).unlink()
    assert lives.host.standings() == {"ns%2Fc%2Fe%2F1": "serving"}


def test_history_outlives_the_daemon(lives: Lives) -> None:
    lives.put("a", aliases=["m"])
    lives.put("b", aliases=["m"])
    lives.host.remove(lives.cards / "a.json")
    until(lambda: _kept_events(lives) == 4, "the history is written")
    lives.again()
    told = lives.client.history(name="m").events
    assert [(Path(event.file).stem, event.standing) for event in told] == [
        ("b", "serving"),
        ("a", "gone"),
        ("b", "blocked"),
        ("a", "serving"),
    ]
    assert told[2].reasons[0].rule == "name_claimed"
    assert lives.client.history(file="b.json", limit=1).events == told[:1]


def _kept_events(lives: Lives) -> int:
    ledger = sqlite3.connect(f"file:{lives.daemon.root}/.s.ledger?mode=ro", uri=True)
    with closing(ledger) as connection:
        found: int = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    return found


# Where the ledger is, and what becomes of others


def test_another_daemon_on_the_same_ledger_says_so_and_does_no_harm(
    lives: Lives, root: Path
) -> None:
    lives.put("a")
    command = [sys.executable, "-m", "discoveryd", "serve", "--cards", str(lives.cards)]
    places = ["--socket", str(root / "other"), "--state", str(root / ".s.ledger")]
    done = subprocess.run(
        [*command, *places],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"another discoveryd keeps its ledger at {root / '.s.ledger'}" in done.stderr
    assert not (root / "other").exists()
    assert lives.put("b") == "serving"
    assert lives.client.status().problems == ()


def test_without_a_ledger_each_start_is_the_first(live: Live, root: Path) -> None:
    (root / "cards").mkdir()
    arguments = ["--cards", str(root / "cards"), "--socket", str(root / "s"), "--state", "none"]
    lives = live(arguments)
    lives.put("b", aliases=["m"])
    lives.put("a", aliases=["m"])
    older(lives.cards / "a.json", 1)
    epoch = lives.cursor.epoch
    assert len(lives.client.history(name="m").events) == 2
    lives.again()
    assert lives.order("m") == ["a"]
    assert lives.cursor.epoch != epoch
    assert {path.name for path in root.iterdir()} <= {"cards", "s", ".s.lock", "stderr"}


@pytest.mark.parametrize("named_by", ["flag", "configuration", "systemd"])
def test_the_ledger_is_where_it_was_named(live: Live, root: Path, named_by: str) -> None:
    place = root / "state"
    place.mkdir()
    (root / "cards").mkdir()
    config = root / "config.toml"
    config.write_text('state = "state/ledger"\n' if named_by == "configuration" else "")
    arguments = ["--cards", str(root / "cards"), "--socket", str(root / "s")]
    arguments += ["--config", str(config)]
    environ = environment()
    if named_by == "flag":
        arguments += ["--state", str(place / "ledger")]
    if named_by == "systemd":
        environ |= {"STATE_DIRECTORY": str(place)}
    lives = live(arguments, environ=environ)
    lives.put("a")
    assert (place / "ledger").exists()
    assert not (root / ".s.ledger").exists()


def test_a_broken_ledger_is_told_and_kept(lives: Lives, root: Path) -> None:
    lives.put("a")
    with lives.killed():
        (root / ".s.ledger").write_bytes(b"rubbish" * 1000)
        (root / ".s.ledger-wal").unlink()
    assert lives.order("a") == ["a"]
    status = lives.client.status()
    assert not status.healthy
    (problem,) = status.problems
    (aside,) = (path for path in root.glob(".s.ledger.broken-*") if not path.match("*-shm"))
    assert aside.read_bytes() == b"rubbish" * 1000
    assert str(aside) in problem
    assert str(aside) in lives.daemon.log
    aside.unlink()
    assert lives.client.status().healthy


def test_history_is_told_on_the_command_line(lives: Lives) -> None:
    lives.put("a", aliases=["m"])
    lives.put("b", aliases=["m"])
    table = ctl(lives, "history", "m")
    assert [line.split()[1:3] for line in table.stdout.splitlines()[1:]] == [
        ["blocked", "name_claimed"],
        ["serving", "-"],
    ]
    one = ctl(lives, "history", str(lives.cards / "a.json"), "--json")
    (event,) = json.loads(one.stdout)["events"]
    assert event["standing"] == "serving"
    assert ctl(lives, "history", "a.json").stdout.count("\n") == 2
    assert ctl(lives, "history", "--limit", "1").stdout.count("\n") == 2
    nothing = ctl(lives, "history", "nobody")
    assert nothing.returncode == 1
    assert "nothing is known of nobody" in nothing.stderr


def ctl(lives: Lives, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = "from discoveryd.client.ctl.start import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments, "--socket", str(lives.daemon.socket)],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
