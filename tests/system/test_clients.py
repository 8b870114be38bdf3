"""Clients that are not ours ask everything: varlink and asyncvarlink, from PyPI.

asyncvarlink checks every reply against types; these are made here from the definition that the
daemon tells of itself, so whatever it answers is held to its own interface.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, TypedDict

import asyncvarlink
import pytest
import varlink  # type: ignore[import-untyped]  # it has no types
import varlink.scanner as idl  # type: ignore[import-untyped]  # it has no types
from asyncvarlink.conversion import ObjectVarlinkType, VarlinkType
from asyncvarlink.serviceinterface import VarlinkServiceInterface

from tests.system.dropping import Host, Json

NAME = "io.discoveryd.Models"
SERVICE = "org.varlink.service"

LLAMA: Json = {
    "display_name": "llama",
    "aliases": ["chat"],
    "source_path": "/models/llama",
    "url": "http://127.0.0.1:8001",
    "context_length": 4096,
    "model_type": "Chat | Completions",
    "worker_type": "decode",
    "needs": [["prefill"]],
    "labels": {"zone": "a"},
}
REFUSED: Json = {
    "display_name": "other",
    "aliases": ["talk"],
    "component": "%2Fmodels%2Fllama",
}

METHODS: list[tuple[str, Json]] = [
    ("Resolve", {"name": "chat"}),
    ("List", {}),
    ("ListWorkers", {}),
    ("ListWorkers", {"name": "llama", "namespace": "default"}),
    ("Explain", {}),
    ("Explain", {"file": "llama.json"}),
    ("Explain", {"name": "chat"}),
    ("Check", {"card": {"display_name": "new"}}),
    ("Check", {"card": REFUSED, "file": "llama.json"}),
    ("Sync", {}),
    ("Sync", {"files": ["llama.json", "refused.json"]}),
    ("GetStatus", {}),
]
STREAMED = [
    ("List", {}, 1),
    ("ListWorkers", {}, 1),
    ("Explain", {}, 1),
    ("Watch", {"name": "chat"}, 2),
    ("Watch", {}, 2),
]
ERRORS: list[tuple[str, Json, str, Json]] = [
    ("Explain", {"file": "none.json"}, f"{NAME}.NoSuchFile", {"file": "none.json"}),
    ("Sync", {"files": ["none.json"]}, f"{NAME}.NoSuchFile", {"file": "none.json"}),
    (
        "Explain",
        {"name": "llama", "file": "llama.json"},
        f"{SERVICE}.InvalidParameter",
        {"parameter": "name"},
    ),
    ("Watch", {}, f"{SERVICE}.ExpectedMore", {}),
]


def identities(methods: list[tuple[str, Json]]) -> list[str]:
    return [f"{method}({', '.join(asked)})" for method, asked in methods]


@pytest.fixture
def asked(host: Host) -> Host:
    """Give a host with a card that serves and one that does not."""
    assert host.put("llama", LLAMA).standing == "serving"
    assert host.put("refused", REFUSED).standing == "refused"
    return host


# varlink


@pytest.fixture
def plain(asked: Host) -> Iterator[Any]:
    """Give a connection of the client `varlink`, which knows what the daemon tells of itself."""
    with (
        varlink.Client(address=f"unix:{asked.daemon.socket}") as client,
        client.open(NAME) as opened,
    ):
        yield opened


def test_varlink_introspects(asked: Host) -> None:
    with varlink.Client(address=f"unix:{asked.daemon.socket}") as client:
        info = client.get_interfaces()
        assert list(info) == [SERVICE, NAME]
        with client.open(SERVICE) as service:
            told = service.GetInfo()
            assert (told["vendor"], told["product"]) == ("discoveryd", "discoveryd")
            assert told["interfaces"] == [SERVICE, NAME]
        assert "Resolve" in client.get_interface(NAME).members


@pytest.mark.parametrize(("method", "parameters"), METHODS, ids=identities(METHODS))
def test_varlink_calls_every_method(plain: Any, method: str, parameters: Json) -> None:
    reply = getattr(plain, method)(**parameters)
    assert reply.keys() == plain._interface.get_method(method).out_type.fields.keys()
    assert reply["cursor"]["revision"] > 0


def test_varlink_iterates_a_watch(plain: Any, asked: Host) -> None:
    replies = plain.Watch(name="chat", _more=True)
    first = next(replies)
    assert (first["reset"], [worker["model"] for worker in first["changed"]]) == (True, ["llama"])
    asked.remove(asked.cards / "llama.json")
    second = next(replies)
    assert second["removed"] == [first["changed"][0]["key"]]
    plain.close()


def test_varlink_gets_the_named_errors(plain: Any) -> None:
    for method, parameters, error, members in ERRORS:
        with pytest.raises(varlink.VarlinkError) as refused:
            getattr(plain, method)(**parameters)
        assert refused.value.error() == error
        assert (refused.value.parameters() or {}) == members
    with pytest.raises(varlink.VarlinkError) as missing:
        plain.Resolve(name="LLAMA")
    assert missing.value.error() == f"{NAME}.NoSuchModel"
    assert missing.value.parameters()["similar"] == ["llama"]


# asyncvarlink


def annotation(declared: Any, interface: idl.Interface) -> Any:
    """Return a type of the interface as asyncvarlink wants it."""
    match declared:
        case idl._CustomType():
            return annotation(interface.members[declared.name].type, interface)
        case idl._Maybe():
            return annotation(declared.element_type, interface) | None
        case idl._Array():
            return list[annotation(declared.element_type, interface)]  # type: ignore[misc]  # made at run time
        case idl._Dict():
            return dict[str, annotation(declared.element_type, interface)]  # type: ignore[misc]  # made at run time
        case idl._Struct():
            members = {n: annotation(t, interface) for n, t in declared.fields.items()}
            return TypedDict("Members", members)  # type: ignore[operator]  # made at run time
        case idl._Object():
            return object
        case idl._Enum():
            return str
        case _:
            return type(declared)


class Typed:
    """A connection of asyncvarlink's, with the types that the daemon tells of itself."""

    def __init__(self, protocol: asyncvarlink.VarlinkClientProtocol) -> None:
        self.service = protocol.make_proxy(VarlinkServiceInterface)
        self._protocol = protocol
        self._interface: Any = None

    async def learn(self) -> None:
        """Ask the daemon what it speaks."""
        told = await self.service.GetInterfaceDescription(interface=NAME)
        self._interface = idl.Interface(told["description"])

    def _type(self, declared: Any) -> ObjectVarlinkType:
        made = VarlinkType.from_type_annotation(annotation(declared, self._interface))
        assert isinstance(made, ObjectVarlinkType)
        return made

    def _open(self, method: str, reply: asyncvarlink.VarlinkMethodReply) -> Json:
        """Return what the reply holds, checked; raise the error that it is, checked."""
        if reply.error is not None:
            interface, _, name = reply.error.rpartition(".")
            if interface == NAME:
                self._type(self._interface.members[name].type).fromjson(reply.parameters)
                raise asyncvarlink.GenericVarlinkErrorReply(reply.error, reply.parameters)
            VarlinkServiceInterface.raise_error(reply)
        out = self._type(self._interface.get_method(method).out_type)
        checked: Json = out.fromjson(reply.parameters)
        return checked

    async def call(self, method: str, parameters: Json) -> Json:
        """Call a method of ours."""
        call = asyncvarlink.VarlinkMethodCall(f"{NAME}.{method}", parameters)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answered = await self._protocol.call(call, None, done)
        done.set_result(None)
        assert answered is not None
        return self._open(method, answered[0])

    async def stream(self, method: str, parameters: Json) -> AsyncGenerator[Json, None]:
        """Call a method of ours with more."""
        call = asyncvarlink.VarlinkMethodCall(f"{NAME}.{method}", parameters, more=True)
        async for reply, _ in self._protocol.call_more(call):
            yield self._open(method, reply)


@pytest.fixture
async def typed(asked: Host) -> AsyncIterator[Typed]:
    transport, protocol = await asyncvarlink.connect_unix_varlink(
        asyncvarlink.VarlinkClientProtocol, asked.daemon.socket
    )
    connection = Typed(protocol)
    await connection.learn()
    yield connection
    transport.close()
    await asyncio.sleep(0)


async def test_asyncvarlink_introspects(typed: Typed) -> None:
    told = await typed.service.GetInfo()
    assert told["interfaces"] == [SERVICE, NAME]
    with pytest.raises(asyncvarlink.VarlinkErrorReply) as missing:
        await typed.service.GetInterfaceDescription(interface="org.example.none")
    assert missing.value.name == f"{SERVICE}.InterfaceNotFound"


@pytest.mark.parametrize(("method", "parameters"), METHODS, ids=identities(METHODS))
async def test_asyncvarlink_calls_every_method(typed: Typed, method: str, parameters: Json) -> None:
    reply = await typed.call(method, parameters)
    assert reply["cursor"]["revision"] > 0


@pytest.mark.parametrize(("method", "parameters", "replies"), STREAMED)
async def test_asyncvarlink_iterates(
    typed: Typed, asked: Host, method: str, parameters: Json, replies: int
) -> None:
    seen: list[Json] = []
    stream = typed.stream(method, parameters)
    async for reply in stream:
        seen.append(reply)
        if len(seen) == replies:
            break
        await asyncio.to_thread(asked.remove, asked.cards / "llama.json")
    if method == "Watch":
        assert [said["reset"] for said in seen] == [True, False]
        assert "chat" in seen[1]["gone"]
        assert seen[1]["removed"] == [seen[0]["changed"][0]["key"]]
    await stream.aclose()


async def test_asyncvarlink_gets_the_named_errors(typed: Typed) -> None:
    for method, parameters, error, members in ERRORS:
        with pytest.raises(asyncvarlink.VarlinkErrorReply) as refused:
            await typed.call(method, parameters)
        assert (refused.value.name, refused.value.paramstojson()) == (error, members)
    for method, error in (
        (f"{NAME}.Nope", "MethodNotFound"),
        ("org.example.List", "InterfaceNotFound"),
    ):
        reply = await typed._protocol.call(asyncvarlink.VarlinkMethodCall(method, {}))
        assert reply is not None
        assert reply[0].error == f"{SERVICE}.{error}"


async def test_asyncvarlink_is_told_who_waits_for_a_missing_name(typed: Typed) -> None:
    with pytest.raises(asyncvarlink.GenericVarlinkErrorReply) as missing:
        await typed.call("Resolve", {"name": "talk"})
    assert missing.value.name == f"{NAME}.NoSuchModel"
    waiting: Any = missing.value.parameters["waiting"]
    assert [(card["model"], card["standing"]) for card in waiting] == [("other", "refused")]
