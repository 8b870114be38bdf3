"""Answers that do not fit into one reply: pieces of one revision, or TooLarge."""

from collections.abc import Iterator
from typing import Any

import pytest

from discoveryd.client import TooLarge
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.raw import Raw, call
from tests.system.running import Daemon, short_directory

SERVING = 2_600
WAITING = 900
PIECE = 1 << 20
LARGEST = 16 << 20


def name_of(number: int) -> str:
    return f"model-{number:05}-" + "x" * 480


@pytest.fixture(scope="module")
def crowded() -> Iterator[Daemon]:
    """Give a daemon whose lists are long: workers 18 MB, names and verdicts over 1 MB."""
    with short_directory() as root:
        cards = root / "cards"
        cards.mkdir()
        for number in range(SERVING):
            card: Json = {"display_name": name_of(number), "labels": {"padding": "y" * 6_500}}
            write(cards / f"{number}.json", card)
        for number in range(WAITING):
            card = {"display_name": f"late-{number}", "aliases": [name_of(0)]}
            write(cards / f"z{number}.json", card)
        daemon = Daemon(root)
        try:
            yield daemon.wait_ready()
            daemon.stop()
        finally:
            daemon.kill()


LISTS = [
    ("List", {}, "names", SERVING, False),
    ("ListWorkers", {}, "workers", SERVING, True),
    ("ListWorkers", {"namespace": "default"}, "workers", SERVING, True),
    ("Explain", {}, "verdicts", WAITING, False),
    ("Explain", {"name": name_of(0)}, "verdicts", WAITING + 1, False),
]


@pytest.mark.parametrize(("method", "asked", "member", "count", "too_large"), LISTS)
def test_a_list_called_with_more_comes_in_pieces_of_one_revision(  # noqa: PLR0913, PLR0917 - a row of the table
    crowded: Daemon, method: str, asked: Json, member: str, count: int, too_large: bool
) -> None:
    with Raw(crowded.socket) as raw:
        raw.send(call(method, asked, more=True))
        pieces: list[dict[str, Any]] = []
        while not pieces or pieces[-1].get("continues"):
            piece = raw.receive()
            assert piece is not None
            pieces.append(piece)
        assert len(pieces) > 1
        items = [item for piece in pieces for item in piece["parameters"][member]]
        assert len(items) == count
        assert len({str(piece["parameters"]["cursor"]) for piece in pieces}) == 1

        whole = raw.ask(method, asked)
        if too_large:
            assert whole["error"] == "io.discoveryd.Models.TooLarge"
            assert whole["parameters"]["limit"] == LARGEST
            assert whole["parameters"]["bytes"] > LARGEST
        else:
            assert whole["parameters"][member] == items
        # What follows on the connection is not disturbed.
        assert raw.ask("Resolve", {"name": name_of(0)})["parameters"]["kind"] == "primary"


def test_pieces_are_of_a_mebibyte_at_most(crowded: Daemon) -> None:
    with Raw(crowded.socket) as raw:
        raw.send(call("ListWorkers", more=True) + call("Resolve", {"name": "no"}))
        received = b""
        while received.count(b"\0") < SERVING * 6_500 // PIECE or b"NoSuchModel" not in received:
            received += raw.socket.recv(1 << 20)
    assert max(map(len, received.split(b"\0"))) <= PIECE + 1_000


def test_the_client_joins_the_pieces(crowded: Daemon) -> None:
    with crowded.client() as client:
        assert len(client.workers().workers) == SERVING
        assert len(client.list().names) == SERVING
        assert len(client.explain().verdicts) == WAITING


def test_a_watch_begins_in_pieces_all_partial_but_the_last(crowded: Daemon) -> None:
    with Raw(crowded.socket) as raw:
        raw.send(call("Watch", more=True))
        pieces: list[dict[str, Any]] = []
        while not pieces or pieces[-1]["partial"]:
            piece = raw.receive()
            assert piece is not None
            assert piece["continues"]
            pieces.append(piece["parameters"])
    assert len(pieces) > SERVING * 6_500 // PIECE
    assert [piece["reset"] for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert sum(len(piece["changed"]) for piece in pieces) == SERVING
    assert sum(len(piece["names"]) for piece in pieces) == SERVING
    assert len({str(piece["cursor"]) for piece in pieces}) == 1


def test_a_name_with_too_many_workers_for_one_reply_is_too_large(start: Start) -> None:
    daemon = start().wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        card: Json = {"display_name": "m", "labels": {"padding": "y" * 900_000}}
        for number in range(19):
            write(host.cards / f"{number}.json", card)
        client.sync()
        with pytest.raises(TooLarge) as refused:
            client.resolve("m")
        assert refused.value.bytes > refused.value.limit == LARGEST
        assert len(client.workers("m").workers) == 19
