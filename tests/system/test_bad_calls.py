"""Bad calls: a named error, or the connection closed where UAPI.20 says so; nobody else notices."""

from collections.abc import Iterator
from typing import Any

import pytest

from discoveryd.client import NoSuchModel
from tests.system.dropping import Host, Json
from tests.system.raw import Raw, call

NAMED = "org.varlink.service"
DEEP = b'{"method":"io.discoveryd.Models.Check","parameters":{"card":' + b"[" * 100_000

REFUSED: list[tuple[bytes, str, Json]] = [
    (call("io.discoveryd.Models.Nope"), "MethodNotFound", {"method": "io.discoveryd.Models.Nope"}),
    (call("io.discoveryd.Nope.List"), "InterfaceNotFound", {"interface": "io.discoveryd.Nope"}),
    (call("Resolve"), "InvalidParameter", {"parameter": "name"}),
    (call("Resolve", {"name": 7}), "InvalidParameter", {"parameter": "name"}),
    (call("Resolve", {"name": None}), "InvalidParameter", {"parameter": "name"}),
    (call("Resolve", {"name": "a", "x": 1}), "InvalidParameter", {"parameter": "x"}),
    (call("List", {"x": 1}), "InvalidParameter", {"parameter": "x"}),
    (call("ListWorkers", {"name": []}), "InvalidParameter", {"parameter": "name"}),
    (call("Explain", {"file": "a", "name": "b"}), "InvalidParameter", {"parameter": "name"}),
    (call("Check", {"card": "text"}), "InvalidParameter", {"parameter": "card"}),
    (call("Check", {}), "InvalidParameter", {"parameter": "card"}),
    (call("Sync", {"files": "a.json"}), "InvalidParameter", {"parameter": "files"}),
    (call("Sync", {"files": [7]}), "InvalidParameter", {"parameter": "files"}),
    (call("Watch"), "ExpectedMore", {}),
    (call("Watch", {"since": 7}, more=True), "InvalidParameter", {"parameter": "since"}),
    (
        call("Watch", {"since": {"epoch": "e"}}, more=True),
        "InvalidParameter",
        {"parameter": "since"},
    ),
    (call("Resolve", {"name": "good"}, upgrade=True), "InvalidParameter", {"parameter": "upgrade"}),
]
CLOSED: list[tuple[str, bytes]] = [
    ("no-json", b"nonsense\0"),
    ("empty-frame", b"\0"),
    ("no-object", b"[]\0"),
    ("no-method", b"{}\0"),
    ("method-of-another-type", b'{"method":7}\0'),
    ("flag-of-another-type", b'{"method":"io.discoveryd.Models.List","more":1}\0'),
    ("unknown-member", b'{"method":"io.discoveryd.Models.List","mode":1}\0'),
    ("parameters-no-object", call("List", [1])),
    ("two-flags", call("List", {}, more=True, oneway=True)),
    ("not-utf-8", b'{"method":"io.discoveryd.Models.\xff"}\0'),
    ("too-deep", DEEP + b"\0"),
    ("too-long", b'{"method":"' + b"x" * ((1 << 20) + (1 << 16))),
    ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\0"),
]


@pytest.fixture
def bystander(served: Host) -> Iterator[Raw]:
    """Give a connection that was there before, and must be answered as before."""
    with Raw(served.daemon.socket) as other:
        before = other.ask("Resolve", {"name": "good"})
        yield other
        assert other.ask("Resolve", {"name": "good"}) == before


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize(("frame", "error", "parameters"), REFUSED)
def test_a_bad_call_gets_a_named_error_and_the_connection_goes_on(
    served: Host, frame: bytes, error: str, parameters: Json
) -> None:
    with Raw(served.daemon.socket) as raw:
        raw.send(frame + call("Resolve", {"name": "good"}))
        refusal = raw.receive()
        assert refusal is not None
        assert refusal["error"] == f"{NAMED}.{error}"
        assert refusal.get("parameters", {}) == parameters
        answer = raw.receive()
        assert answer is not None
        assert answer["parameters"]["name"] == "good"


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("frame", [f for _, f in CLOSED], ids=[name for name, _ in CLOSED])
def test_a_peer_that_breaks_the_protocol_is_answered_up_to_there_and_closed(
    served: Host, frame: bytes
) -> None:
    with Raw(served.daemon.socket) as raw:
        raw.send(call("Resolve", {"name": "good"}))
        raw.send(frame)
        assert [reply["parameters"]["name"] for reply in raw.rest()] == ["good"]


@pytest.mark.usefixtures("bystander")
def test_named_errors_of_ours(served: Host) -> None:
    with Raw(served.daemon.socket) as raw:
        missing: dict[str, Any] = raw.ask("Resolve", {"name": "nobody"})
        assert missing["error"] == "io.discoveryd.Models.NoSuchModel"
        assert missing["parameters"] == {
            "name": "nobody",
            "similar": [],
            "waiting": [],
            "more_waiting": 0,
        }
        for method, parameters in (
            ("Explain", {"file": "none.json"}),
            ("Sync", {"files": ["none.json"]}),
            ("Sync", {"files": ["/elsewhere/none.json"]}),
        ):
            refusal = raw.ask(method, parameters)
            assert refusal["error"] == "io.discoveryd.Models.NoSuchFile"
            (file,) = refusal["parameters"].values()
            assert file.endswith("none.json")


@pytest.mark.usefixtures("bystander")
def test_a_peer_that_leaves_in_the_middle_of_a_call_harms_nobody(served: Host) -> None:
    for frame in (call("Sync")[:-1], call("Watch", {}, more=True), b"{", call("List") * 100):
        with Raw(served.daemon.socket) as raw:
            raw.send(frame)
    with pytest.raises(NoSuchModel):
        served.client.resolve("nobody")
