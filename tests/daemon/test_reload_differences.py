"""What a reload says is different, in words, and what it leaves as it is."""

import msgspec
import pytest

from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.configuration.differences import compare
from discoveryd.daemon.permit.allowing import Allow

BEFORE = Config(
    cards=("/a", "/b"),
    socket="/s",
    state="/ledger",
    aliases={"x": "m", "y": "n"},
    allow=(Allow(user=1), Allow(names=("a*", "b"), urls=())),
    quota=3,
)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ()),
        ({"cards": ("/b", "/a")}, ()),
        (
            {"cards": ("/b", "/c"), "dynamo": ("/d",)},
            (
                "cards: /c is followed now",
                "cards: /a is followed no longer",
                "dynamo: /d is followed now",
            ),
        ),
        (
            {"aliases": {"y": "o", "z": "m"}},
            (
                'aliases: "x" is none any longer; it stood for "m"',
                'aliases: "y" stands for "o" now; it stood for "n"',
                'aliases: "z" stands for "m" now',
            ),
        ),
        (
            {"allow": (Allow(group=7, directory="/a", endpoints=("ns/*",)), Allow(user=1))},
            (
                "[[allow]]: there is an entry for gid 7, directory /a; endpoints ns/* now",
                "[[allow]]: the entry for names a*, b; urls nothing is gone",
            ),
        ),
        (
            {"allow": BEFORE.allow[::-1]},
            ("[[allow]]: the entries stand in another order, or another number of times",),
        ),
        (
            {"by_owner": True, "quota": None, "follow_symlinks": True, "log_level": "debug"},
            (
                'owner is "uid" now; it was left out',
                "quota is left out now; it was 3",
                "follow_symlinks is true now; it was false",
                "log_level is debug now; it was info",
            ),
        ),
    ],
    ids=str,
)
def test_each_setting_is_named_with_what_it_was(
    settings: dict[str, object], words: tuple[str, ...]
) -> None:
    told = msgspec.structs.replace(BEFORE, **settings)
    difference = compare(BEFORE, told)
    assert difference.changed == words
    assert difference.kept == ()
    assert difference.config == told


def test_what_holds_for_a_whole_life_is_kept() -> None:
    told = msgspec.structs.replace(
        BEFORE, socket="/t", socket_mode=0o666, socket_group=5, http="/h", state=None, quota=4
    )
    config, changed, kept = compare(BEFORE, told)
    assert changed == ("quota is 4 now; it was 3",)
    assert kept == (
        "socket = /t needs a restart: until then it stays /s",
        "socket_mode = 0666 needs a restart: until then it stays 0600",
        "socket_group = 5 needs a restart: until then it stays left out",
        "http = /h needs a restart: until then it stays left out",
        "state = none needs a restart: until then it stays /ledger",
    )
    assert config == msgspec.structs.replace(BEFORE, quota=4)


def test_names_cannot_steer_a_terminal() -> None:
    told = msgspec.structs.replace(BEFORE, aliases={"\x1b[2J": "a" * 300})
    assert all(line.isprintable() for line in compare(BEFORE, told).changed)
