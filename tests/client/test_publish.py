"""A card's way into a drop directory: whole, readable, or not at all; and out of it."""

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from discoveryd.client.workers.publishing import (
    CannotWrite,
    drop_directory,
    publish,
    read,
    withdraw,
    write,
)
from discoveryd.interface import Status
from tests.client import fakes
from tests.client.users import NOBODY, needs_root, nobody

CARD = {"display_name": "llama", "url": "http://127.0.0.1:8001"}


def status(*directories: tuple[Path, str]) -> Status:
    (usual,) = fakes.status()["directories"]
    watched = [{**usual, "path": str(path), "layout": layout} for path, layout in directories]
    return msgspec.convert(fakes.status(directories=watched), Status)


@pytest.fixture
def cards(directory: Path) -> Path:
    cards = directory / "cards"
    cards.mkdir()
    return cards


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_card_is_published_under_its_name(cards: Path) -> None:
    path = publish(CARD, "llama.json", str(cards))
    assert path == str(cards / "llama.json")
    assert json.loads(Path(path).read_bytes()) == CARD
    assert names(cards) == ["llama.json"]


def test_bytes_are_published_as_they_are(cards: Path) -> None:
    path = publish(b"no card", "llama.json", str(cards))
    assert Path(path).read_bytes() == b"no card"


def test_a_card_is_readable_for_all_whatever_the_umask(cards: Path) -> None:
    before = os.umask(0o077)
    try:
        path = publish(CARD, "llama.json", str(cards))
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o644


def test_whoever_looks_meanwhile_sees_whole_cards_only(cards: Path) -> None:
    ended = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not ended.is_set():
            for path in cards.glob("[!.]*.json"):
                seen.add(json.loads(path.read_bytes())["display_name"])

    reader = threading.Thread(target=look)
    reader.start()
    number = 0
    while len(seen) < 20 and reader.is_alive():
        number += 1
        publish({"display_name": str(number), "pad": "x" * 200_000}, "a.json", str(cards))
    ended.set()
    reader.join()
    assert len(seen) >= 20, "the reader ended early: it read something torn"


@pytest.mark.parametrize("file", ["llama", ".llama.json", "a/b.json", "", "a\0.json", "../x.json"])
def test_a_name_that_the_daemon_passes_over_is_refused(cards: Path, file: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.json"):
        publish(CARD, file, str(cards))
    assert names(cards) == []


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, "\ud800"])
def test_what_cannot_be_json_is_refused_before_anything_is_written(
    cards: Path, value: object
) -> None:
    with pytest.raises((TypeError, ValueError)):
        publish({"display_name": value}, "a.json", str(cards))
    assert names(cards) == []


def test_a_failure_in_the_midst_leaves_nothing_behind(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(CannotWrite, match=r"cards/a\.json: No space left on device"):
        publish(CARD, "a.json", str(cards))
    assert names(cards) == []


def test_an_interrupt_in_the_midst_leaves_nothing_behind(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fchmod", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publish(CARD, "a.json", str(cards))
    assert names(cards) == []


def test_a_directory_is_never_made(directory: Path) -> None:
    with pytest.raises(CannotWrite, match=r"none/a\.json: No such file or directory"):
        publish(CARD, "a.json", str(directory / "none"))
    assert not (directory / "none").exists()


@needs_root
def test_another_users_file_in_a_sticky_directory_is_told_as_such(cards: Path) -> None:
    cards.chmod(0o1777)
    publish(CARD, "a.json", str(cards))
    cards.parent.chmod(0o755)
    with nobody():
        with pytest.raises(CannotWrite, match=r"it belongs to root.*give yours another name"):
            publish(CARD, "a.json", str(cards))
        with pytest.raises(CannotWrite, match="it belongs to root"):
            withdraw(str(cards / "a.json"))
    assert names(cards) == ["a.json"]


def test_withdrawing_removes_the_card_and_again_is_harmless(cards: Path) -> None:
    path = publish(CARD, "a.json", str(cards))
    withdraw(path)
    withdraw(path)
    assert names(cards) == []


def test_what_is_no_regular_file_is_not_read(cards: Path) -> None:
    (cards / "link.json").symlink_to("elsewhere")
    with pytest.raises(CannotWrite, match="is a link"):
        read(str(cards / "link.json"))
    os.mkfifo(cards / "pipe.json")
    with pytest.raises(CannotWrite, match="no regular file"):
        read(str(cards / "pipe.json"))
    assert read(str(cards / "none.json")) is None


@needs_root
def test_a_rewritten_file_keeps_its_owner_and_mode(cards: Path) -> None:
    path = publish(CARD, "a.json", str(cards))
    os.chown(path, NOBODY, NOBODY)
    Path(path).chmod(0o640)
    found = read(path)
    assert found is not None
    write(path, b"{}", like=found[1])
    after = Path(path).stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (NOBODY, NOBODY, 0o640)
    assert Path(path).read_bytes() == b"{}"


def test_cards_go_where_the_daemon_looks(cards: Path, directory: Path) -> None:
    found = drop_directory(status((directory, "dynamo"), (cards, "cards")), {})
    assert found.path == str(cards)
    assert found.named("a.json") == f"{cards}/a.json"


@needs_root
def test_cards_go_into_the_first_directory_that_may_be_written(
    cards: Path, directory: Path
) -> None:
    own = directory / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    directory.chmod(0o755)
    watched = status((directory / "none", "cards"), (cards, "cards"), (own, "cards"))
    assert drop_directory(watched, {}).path == str(cards)
    with nobody():
        assert drop_directory(watched, {}).path == str(own)


@needs_root
def test_where_no_directory_may_be_written_each_says_what_to_do(
    cards: Path, directory: Path
) -> None:
    directory.chmod(0o755)
    cards.chmod(0o3775)
    own = directory / "own"
    own.mkdir(0o755)
    (directory / "file").touch()
    places = (cards, own, directory / "file", directory / "none")
    with nobody(), pytest.raises(CannotWrite) as caught:
        drop_directory(status(*((place, "cards") for place in places)), {})
    said = str(caught.value).splitlines()
    assert said[0] == "there is no drop directory to write a card to; tried:"
    assert said[1].startswith(f"  {cards}: only the group root may write there: usermod -aG root ")
    assert said[2] == f"  {own}: only root may write there"
    assert said[3] == f"  {directory}/file: it is no directory"
    assert said[4].endswith(
        "/none: it is not there; where it is mounted elsewhere, DISCOVERYD_CARDS says so"
    )


def test_a_daemon_of_stores_alone_has_nowhere_for_cards(directory: Path) -> None:
    with pytest.raises(CannotWrite, match="watches no drop directory, only Dynamo stores"):
        drop_directory(status((directory, "dynamo")), {})


def test_the_environment_says_where_a_container_sees_the_directory(cards: Path) -> None:
    environ = {"DISCOVERYD_CARDS": f"/none{os.pathsep}{cards}"}
    found = drop_directory(status((Path("/srv/cards"), "cards")), environ)
    assert found.path == str(cards)
    assert found.named("a.json") == "a.json"


def test_a_place_that_is_named_comes_before_the_environment(cards: Path, directory: Path) -> None:
    environ = {"DISCOVERYD_CARDS": str(directory)}
    found = drop_directory(status((cards, "cards")), environ, str(cards))
    assert found.named("a.json") == f"{cards}/a.json"


def test_the_daemons_directory_is_known_again_behind_a_link(cards: Path, directory: Path) -> None:
    (directory / "link").symlink_to(cards)
    environ = {"DISCOVERYD_CARDS": str(directory / "link")}
    found = drop_directory(status((cards, "cards")), environ)
    assert found.path == str(directory / "link")
    assert found.named("a.json") == f"{cards}/a.json"


def test_a_name_that_is_not_utf8_is_told_as_the_daemon_tells_it(cards: Path) -> None:
    found = drop_directory(status((cards, "cards")), {})
    assert found.named(os.fsdecode(b"a\xff\\.json")) == f"{cards}/a\\xff\\\\.json"
