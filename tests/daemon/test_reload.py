"""Reload: a running daemon made what its configuration says now, in one step and without a gap."""

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from discoveryd.core.places import Place
from discoveryd.daemon.collecting import without_collecting
from discoveryd.daemon.configuration import differences
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.permit.allowing import Allow
from tests.daemon.daemons import Hanging, Host, drop, running
from tests.daemon.disk import until

OWN = os.geteuid()


@pytest.fixture
def config(socket_directory: Path) -> Config:
    """A configuration with one drop directory and a ledger."""
    (socket_directory / "cards").mkdir()
    return Config(
        cards=(str(socket_directory / "cards"),),
        socket=str(socket_directory / "s"),
        state=str(socket_directory / "ledger"),
    )


@pytest.fixture
def cards(config: Config) -> Path:
    return Path(config.cards[0])


@pytest.fixture
def other(socket_directory: Path) -> Path:
    """Another directory, which is not followed yet."""
    other = socket_directory / "other"
    other.mkdir()
    return other


@pytest.fixture
async def host(config: Config) -> AsyncIterator[Host]:
    async with running(config) as host:
        yield host


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging(monkeypatch)
    yield hanging
    hanging.let_go()


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Leave the log's level as it was, which is the process's."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


# What comes of it


async def test_where_nothing_is_different_nothing_changes(host: Host, cards: Path) -> None:
    drop(cards / "a.json")
    await host.until_served("a")
    revision = host.revision
    assert await host.reload() == ((), ())
    assert host.revision == revision
    assert host.problems == ()


async def test_a_card_that_no_event_told_of_is_found(host: Host, cards: Path) -> None:
    """The first scan after the call has been applied when the reply comes."""
    drop(cards / "a.json")
    await host.reload()
    assert host.workers("a") == ["a"]


async def test_what_changed_is_logged_and_returned(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    changed, problems = await host.reload(quota=5, aliases={"gpt": "a"}, log_level="info")
    assert changed == (
        'aliases: "gpt" stands for "a" now',
        "quota is 5 now; it was left out",
    )
    assert problems == ()
    assert set(changed) <= set(caplog.messages)


async def test_a_faulty_configuration_changes_nothing_until_a_good_one_comes(
    host: Host, cards: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B100."""
    drop(cards / "a.json")
    host.fault = ConfigError("config.toml: unknown key 'alais'")
    changed, (problem,) = await host.reload(aliases={"gpt": "a"})
    assert not changed
    assert problem.startswith("the configuration was not taken over at 2")
    assert problem.endswith(": config.toml: unknown key 'alais'")
    assert problem in caplog.messages
    assert host.problems == (problem,)
    assert host.workers("a") == ["a"], "everything was looked at all the same"
    assert host.workers("gpt") is None
    host.fault = StartError("cannot make /run/x")
    _, (problem,) = await host.reload()
    assert "cannot make /run/x" in problem
    host.fault = None
    changed, problems = await host.reload()
    assert [*changed] == ['aliases: "gpt" stands for "a" now']
    assert [*problems, *host.problems] == []
    assert host.workers("gpt") == ["a"]


async def test_what_cannot_change_stays_and_is_said_to_need_a_restart(
    host: Host, socket_directory: Path
) -> None:
    there = f"{socket_directory}/elsewhere"
    told = {"socket": there, "socket_mode": 0o660, "socket_group": 7, "state": None}
    for _ in range(2):
        changed, problems = await host.reload(**told)
        assert changed == ()
        assert problems == (
            f"socket = {there} needs a restart: until then it stays {socket_directory}/s",
            "socket_mode = 0660 needs a restart: until then it stays 0600",
            "socket_group = 7 needs a restart: until then it stays left out",
            f"state = none needs a restart: until then it stays {socket_directory}/ledger",
        )
    assert Path(socket_directory / "s").is_socket()


async def test_the_level_of_the_log_is_taken_over(host: Host) -> None:
    changed, _ = await host.reload(log_level="debug")
    assert changed == ("log_level is debug now; it was info",)
    assert logging.getLogger().level == logging.DEBUG


async def test_missing_default_directories_are_made(host: Host, socket_directory: Path) -> None:
    place = Place(str(socket_directory / "place"), public_parent=False)
    changed, problems = await host.reload(cards=(place.cards,), place=place)
    assert len(changed) == 2
    assert problems == ()
    assert Path(place.cards).is_dir()


# One after the other


async def test_the_manager_is_told_that_it_begins_and_that_it_is_over(host: Host) -> None:
    """B100."""
    await host.reload()
    host.fault = ConfigError("bad")
    await host.reload()
    assert host.messages.told == ["ready", "reloading", "ready", "reloading", "ready"]
    assert host.messages.statuses[0] == "0 workers, 0 models, revision 0"
    assert host.messages.statuses[-1] == "0 workers, 0 models, 1 problem, revision 0"


async def test_who_asks_while_one_is_made_shares_the_next(host: Host) -> None:
    replies = await asyncio.gather(*(host.daemon.reload() for _ in range(5)))
    assert host.reads == 1
    assert all(reply is replies[0] for reply in replies)
    read = threading.Event()
    go_on = threading.Event()

    def slowly() -> Config:
        read.set()
        assert go_on.wait(10)
        return host.config

    usual, host.daemon._reloading._reconfigure = host.daemon._reloading._reconfigure, slowly
    first = asyncio.create_task(host.daemon.reload())
    await until(read.is_set)
    host.daemon._reloading._reconfigure = usual
    later = [asyncio.create_task(host.daemon.reload()) for _ in range(3)]
    go_on.set()
    assert (await first).changed == ()
    await asyncio.gather(*later)
    assert host.reads == 2


async def test_who_leaves_stops_nothing(host: Host, cards: Path) -> None:
    drop(cards / "a.json")
    await host.until_served("a")
    host.config = msgspec.structs.replace(host.config, aliases={"gpt": "a"})
    asking = asyncio.create_task(host.daemon.reload())
    await until(lambda: "reloading" in host.messages.told)
    asking.cancel()
    await host.until_served("gpt")


async def test_one_that_comes_too_early_waits_and_one_too_late_says_so(config: Config) -> None:
    host = Host(config)
    early = asyncio.create_task(host.daemon.reload())
    life = asyncio.create_task(host.daemon.run())
    assert (await early).problems == ()
    assert host.messages.told[:2] == ["ready", "reloading"]
    host.daemon.stop()
    await life
    assert host.messages.told[-1] == "stopping"
    assert (await host.daemon.reload()).problems == ("the daemon is ending",)


async def test_who_waits_for_one_is_let_go_when_the_daemon_ends(
    config: Config, hanging: Hanging, cards: Path
) -> None:
    async with running(config) as host:
        hanging.hang(cards)
        asking = asyncio.create_task(host.daemon.reload())
        await until(lambda: "reloading" in host.messages.told)
    assert (await asking).problems == ("the daemon is ending",)
    assert host.messages.told == ["ready", "reloading", "stopping"]


async def test_one_that_cannot_be_read_in_time_changes_nothing(host: Host) -> None:
    go_on = threading.Event()

    def never() -> Config:
        go_on.wait()
        return host.config

    host.daemon._reloading._patience_seconds = 0.1
    host.daemon._reloading._reconfigure = never
    try:
        changed, (problem,) = await host.reload(quota=1)
    finally:
        go_on.set()
    assert changed == ()
    assert "could not be read within 0.1 s" in problem


# Names and cards


async def test_the_operators_names_are_taken_from_who_serves_in_one_revision(
    host: Host, cards: Path
) -> None:
    """B72: the one exception to 'nothing firm is displaced'."""
    drop(cards / "a.json")
    taken = drop(cards / "gpt.json")
    await host.until_served("a")
    await host.until_served("gpt")
    revision = host.revision
    changed, _ = await host.reload(aliases={"gpt": "a"})
    assert changed == ('aliases: "gpt" stands for "a" now',)
    assert host.revision == revision + 1
    assert host.workers("gpt") == ["a"]
    (reason,) = host.verdict(taken).reasons
    assert (host.verdict(taken).standing, reason.rule) == ("blocked", "operator_claim")
    changed, _ = await host.reload(aliases={})
    assert changed == ('aliases: "gpt" is none any longer; it stood for "a"',)
    assert host.workers("gpt") == ["gpt"]


async def test_entries_and_quota_are_held_to_what_serves(host: Host, cards: Path) -> None:
    paths = [drop(cards / f"{name}.json") for name in "abc"]
    for path in paths:
        await host.until_served(path.stem)
    order = [served.file for served in host.daemon._writer.answers.workers.values()]
    revision = host.revision
    await host.reload(allow=(Allow(names=("a", "c")),))
    assert host.revision == revision + 1
    assert host.verdict(paths[1]).standing == "forbidden"
    assert host.workers("b") is None
    # The others have kept their ranks; who is let in again comes last.
    await host.reload(allow=())
    order.append(order.pop(order.index(str(paths[1]))))
    assert [served.file for served in host.daemon._writer.answers.workers.values()] == order


async def test_a_hold_goes_on(host: Host, cards: Path, other: Path) -> None:
    class Own:
        uid = OWN

    path = drop(cards / "a.json", liveness={"held": True})
    await host.daemon.sync([str(path)])
    assert host.verdict(path).standing == "expired"
    await host.daemon._liveness.hold(Own(), [str(path)])
    assert host.workers("a") == ["a"]
    revision = host.revision
    await host.reload(cards=(str(cards), str(other)), quota=3)
    await host.reload(follow_symlinks=True)
    assert (host.workers("a"), host.revision) == (["a"], revision)


async def test_a_card_that_was_forbidden_a_while_has_a_life_again(host: Host, cards: Path) -> None:
    path = drop(cards / "a.json", liveness={"lease_seconds": 60, "pid": os.getpid()})
    await host.until_served("a")
    await host.reload(allow=(Allow(names=("b",)),))
    assert host.verdict(path).standing == "forbidden"
    await host.reload(allow=())
    assert host.workers("a") == ["a"]
    assert str(path) in host.daemon._liveness._lives


# Directories


async def test_a_new_directorys_cards_come_in_the_same_revision_as_the_rest(
    host: Host, cards: Path, other: Path
) -> None:
    drop(cards / "a.json")
    await host.until_served("a")
    drop(other / "b.json")
    drop(other / "c.json")
    revision = host.revision
    changed, problems = await host.reload(cards=(str(cards), str(other)), aliases={"x": "b"})
    assert changed == (f"cards: {other} is followed now", 'aliases: "x" stands for "b" now')
    assert problems == ()
    assert host.revision == revision + 1
    assert (host.workers("x"), host.workers("c")) == (["b"], ["c"])
    drop(other / "d.json")
    await host.until_served("d")
    assert [each.path for each in host.daemon.status().directories] == [str(cards), str(other)]


async def test_a_directory_that_is_left_is_not_listened_to(
    host: Host, cards: Path, other: Path
) -> None:
    """B55."""
    watchers = watching_threads()
    drop(cards / "a.json")
    await host.until_served("a")
    drop(other / "b.json")
    await host.reload(cards=(str(cards), str(other)))
    assert len(watching_threads()) == len(watchers) + 2
    changed, _ = await host.reload(cards=(str(other),))
    assert changed == (f"cards: {cards} is followed no longer",)
    assert (host.workers("a"), host.workers("b")) == (None, ["b"])
    assert len(watching_threads()) == len(watchers)
    drop(cards / "a2.json")
    await host.daemon.sync(None)
    drop(other / "b2.json")
    await host.until_served("b2")
    assert list(host.standings()) == [str(other / "b.json"), str(other / "b2.json")]
    assert list(host.daemon.files_named("x.json")) == [str(other / "x.json")]


def watching_threads() -> set[int]:
    """Return the inotify instances of this process: two a watch."""
    descriptors = Path("/proc/self/fd")
    return {
        int(each.name)
        for each in descriptors.iterdir()
        if (descriptors / each.name).is_symlink() and "inotify" in _target(each)
    }


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


async def test_a_file_that_moved_from_one_to_the_other_has_moved(
    host: Host, cards: Path, other: Path
) -> None:
    drop(cards / "first.json", display_name="m", instance="1")
    await host.until_served("m")
    drop(cards / "second.json", display_name="m", instance="2")
    await until(lambda: host.workers("m") == ["first", "second"])
    revision = host.revision
    for path in cards.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    await host.reload(cards=(str(other),))
    assert host.workers("m") == ["first", "second"]
    assert {Path(s.file).parent for s in host.daemon._writer.answers.workers.values()} == {other}
    assert host.revision == revision + 1


async def test_a_directory_may_come_and_go_that_is_not_there(host: Host, cards: Path) -> None:
    nowhere = cards.parent / "nowhere"
    await host.reload(cards=(str(cards), str(nowhere)))
    assert [p for p in host.problems if "does not exist" in p]
    await host.reload(cards=(str(cards),))
    assert host.problems == ()


async def test_nothing_is_left_of_a_directory_that_is_left(
    host: Host, cards: Path, other: Path
) -> None:
    with without_collecting():
        await host.reload(cards=(str(cards), str(other)))
        followed = weakref.ref(list(host.daemon._followed)[1])
        await host.reload(cards=(str(cards),))
        await until(lambda: followed() is None)


async def test_a_dynamo_store_comes_and_goes(host: Host) -> None:
    store = next((Path(__file__).parent.parent / "data/dynamo-store").rglob("v1/mdc")).parent.parent
    changed, _ = await host.reload(dynamo=(str(store),))
    assert changed == (f"dynamo: {store} is followed now",)
    assert {Path(file).parent for file in host.standings()} == {store / "v1/mdc"}
    await host.reload(dynamo=())
    assert host.standings() == {}


async def test_links_are_followed_from_now_on_or_no_longer(
    host: Host, cards: Path, other: Path
) -> None:
    plain = drop(cards / "a.json")
    link = cards / "b.json"
    link.symlink_to(drop(other / "target.json", display_name="b"))
    await host.until_served("a")
    await until(lambda: str(link) in host.standings())
    assert host.verdict(link).standing == "invalid"
    order = [served.admission for served in host.daemon._writer.answers.workers.values()]
    await host.reload(follow_symlinks=True)
    assert (host.workers("a"), host.workers("b")) == (["a"], ["b"])
    await host.reload(follow_symlinks=False)
    assert (host.workers("a"), host.workers("b")) == (["a"], None)
    assert host.verdict(link).standing == "invalid"
    assert [s.admission for s in host.daemon._writer.answers.workers.values()] == order
    plain.unlink()
    await until(lambda: host.workers("a") is None)


async def test_what_goes_while_a_directory_is_remade_is_gone(
    host: Host, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(cards / "a.json")
    await host.until_served("a")
    gates = host.daemon._gates
    prepare = gates.prepare

    async def meanwhile(*arguments: object) -> None:
        """After the new one's first scan and before it follows: a card comes and goes again."""
        path = drop(cards / "brief.json")
        await host.until_served("brief")
        await prepare(*arguments)  # type: ignore[arg-type]  # as they come
        path.unlink()

    monkeypatch.setattr(gates, "prepare", meanwhile)
    await host.reload(follow_symlinks=True)
    assert list(host.standings()) == [str(cards / "a.json")]


# What hangs


async def test_a_directory_that_hangs_and_is_left_keeps_nobody_waiting(
    host: Host, cards: Path, other: Path, hanging: Hanging
) -> None:
    drop(other / "b.json")
    await host.reload(cards=(str(cards), str(other)))
    hanging.hang(other)
    waiting = asyncio.create_task(host.daemon.sync(None))
    await until(lambda: hanging.is_met(other))
    _, problems = await host.reload(cards=(str(cards),))
    assert problems == ()
    assert host.workers("b") is None
    await waiting
    hanging.let_go()
    await host.daemon.sync(None)
    assert host.standings() == {}


async def test_one_that_hangs_and_stays_is_named(
    host: Host, cards: Path, other: Path, hanging: Hanging
) -> None:
    await host.reload(cards=(str(cards), str(other)))
    host.daemon._reloading._patience_seconds = 0.2
    hanging.hang(other)
    drop(cards / "a.json")
    changed, (problem,) = await host.reload(aliases={"x": "a"})
    assert len(changed) == 1
    assert problem.startswith(f"{other} could not be looked at within 0.2 s")
    assert host.workers("x") == ["a"]


async def test_a_new_one_that_hangs_joins_once_it_answers(
    host: Host, cards: Path, other: Path, hanging: Hanging
) -> None:
    drop(other / "b.json")
    host.daemon._reloading._patience_seconds = 0.2
    hanging.hang(other)
    changed, problems = await host.reload(cards=(str(cards), str(other)))
    assert changed == (f"cards: {other} is followed now",)
    assert [each for each in problems if each.startswith(f"{other} could not be looked at")]
    assert len(problems) == 1
    drop(cards / "a.json")
    await host.until_served("a")
    hanging.let_go()
    await host.until_served("b")
    drop(other / "c.json")
    await host.until_served("c")


async def test_a_new_one_that_hangs_may_be_left_again(
    host: Host, cards: Path, other: Path, hanging: Hanging
) -> None:
    drop(other / "b.json")
    host.daemon._reloading._patience_seconds = 0.2
    hanging.hang(other)
    await host.reload(cards=(str(cards), str(other)))
    await host.reload(cards=(str(cards),))
    hanging.let_go()
    await host.daemon.sync(None)
    with anyio.move_on_after(0.3):
        await host.until_served("b")
    assert host.standings() == {}


# As if it had been started so


@pytest.mark.parametrize(
    "steps",
    [
        [{"allow": (Allow(names=("a*", "b")),)}, {"quota": 2}],
        [{"aliases": {"a0": "b0", "z": "a1"}}, {"aliases": {"z": "b0"}}],
        [{"by_owner": True}, {"by_owner": False, "quota": 1}],
        [{"by_owner": True, "allow": (Allow(user=OWN, names=("*1",)),)}],
        [{"follow_symlinks": True}, {"aliases": {"linked": "a0"}}],
        [{"follow_symlinks": True}, {"follow_symlinks": False, "allow": (Allow(user=OWN + 1),)}],
        [{"cards": "other"}, {"cards": "both", "quota": 3}],
        [{"cards": "both"}, {"cards": "other", "follow_symlinks": True}, {"cards": "cards"}],
    ],
    ids=str,
)
async def test_after_any_reloads_the_verdicts_are_those_of_a_fresh_daemon(
    config: Config, cards: Path, other: Path, steps: list[dict[str, object]]
) -> None:
    """Where order plays no role: the cards differ in all that counts."""
    places = {"cards": (str(cards),), "other": (str(other),), "both": (str(cards), str(other))}
    for number in range(3):
        drop(cards / f"a{number}.json", aliases=[f"alias{number}"])
        drop(other / f"b{number}.json")
    (cards / "torn.json").write_text("{")
    (cards / "linked.json").symlink_to(drop(other / ".hidden.json", display_name="linked"))
    async with running(config) as host:
        for step in steps:
            if "cards" in step:
                step = step | {"cards": places[str(step["cards"])]}  # noqa: PLW2901  # spelled out
            _, problems = await host.reload(**step)
            assert problems == ()
        reloaded = picture(host)
        revision = host.revision
    async with running(host.config) as again:
        assert picture(again) == reloaded, "a restart changes nothing"
        assert again.revision == revision
    state = str(cards.parent / "another-ledger")
    async with running(msgspec.structs.replace(host.config, state=state)) as fresh:
        assert picture(fresh) == reloaded


async def test_what_was_torn_when_the_daemon_died_is_held_to_what_was_changed_meanwhile(
    config: Config, cards: Path
) -> None:
    path = drop(cards / "a.json")
    async with running(config) as host:
        path.write_text("{")
        await until(lambda: host.verdict(path).standing == "invalid")
        assert host.workers("a") == ["a"]
    stricter = msgspec.structs.replace(config, allow=(Allow(names=("b",)),))
    async with running(stricter) as host:
        assert host.workers("a") is None
    async with running(config) as host:
        assert host.workers("a") == ["a"]
        assert host.verdict(path).standing == "invalid"


def picture(host: Host) -> object:
    answers = host.daemon._writer.answers
    lines = sorted(answers.lines())
    return (
        host.standings(),
        lines,
        {line.name: sorted(host.workers(line.name) or ()) for line in lines},
    )


def test_whoever_adds_a_setting_has_to_say_what_a_reload_makes_of_it() -> None:
    by_name = {*differences._LASTING, *differences._SINGLE}
    compared = by_name | {"cards", "dynamo", "aliases", "allow", "place"}
    assert compared == {name.replace("by_owner", "owner") for name in Config.__struct_fields__}


async def test_where_users_have_no_number_nobody_is_taken_for_the_daemons_own(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (host.daemon.may_reload(OWN), host.daemon.may_reload(OWN + 1)) == (True, False)
    monkeypatch.setattr(host.daemon._gates, "unmapped", OWN)
    assert not host.daemon.may_reload(OWN)
