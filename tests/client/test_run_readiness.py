"""What counts as ready, what as an answer, and where a worker is asked."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from discoveryd.client.running.readiness import Readiness, usual_places
from tests.client.listed import ListingServer, listing_server


@pytest.fixture
def server() -> Iterator[ListingServer]:
    with listing_server({}) as begun:
        yield begun


def usual(server: ListingServer) -> Readiness:
    return Readiness(usual_places(server.url))


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1//"]
)
def test_a_worker_is_asked_for_its_health_and_then_for_its_models(url: str) -> None:
    assert usual_places(url) == ("http://h:1/health", "http://h:1/v1/models")


def test_a_socket_is_asked_for_the_same() -> None:
    assert usual_places("unix:///run/w.sock") == (
        "unix:///run/w.sock/health",
        "unix:///run/w.sock/v1/models",
    )


@pytest.mark.parametrize(
    ("statuses", "ready"),
    [
        ([200], True),
        ([204], True),
        ([503], False),
        ([500], False),
        ([404, 200], True),
        ([405, 200], True),
        ([501, 200], True),
        ([302, 200], True),
        ([401, 200], True),
        ([404, 401], True),
        ([404, 403], True),
        ([404, 503], False),
        ([404, 404], False),
        ([404, 302], False),
    ],
    ids=str,
)
async def test_a_status_says_whether_it_is_ready(
    server: ListingServer, statuses: list[int], ready: bool
) -> None:
    server.statuses = list(statuses)
    trouble = await usual(server).not_ready()
    assert trouble == (None if ready else f"it answers {statuses[-1]}")
    assert server.asked == ["/health", "/v1/models"][: len(statuses)]


@pytest.mark.parametrize(
    ("status", "ready"), [(200, True), (401, True), (404, False), (501, False)]
)
async def test_a_place_that_was_named_is_the_only_one(
    server: ListingServer, status: int, ready: bool
) -> None:
    server.status = status
    trouble = await Readiness([f"{server.url}/up"]).not_ready()
    assert (trouble is None) == ready
    assert server.asked == ["/up"]


@pytest.mark.parametrize(
    ("status", "answers"), [(200, True), (302, True), (404, True), (429, True), (500, False)]
)
async def test_everything_but_a_failure_on_its_side_is_an_answer_where_it_was_ready(
    server: ListingServer, status: int, answers: bool
) -> None:
    readiness = usual(server)
    server.statuses = [404, 200]
    assert await readiness.not_ready() is None
    server.status = status
    trouble = await readiness.not_answering()
    assert trouble == (None if answers else "it answers 500")
    assert server.asked == ["/health", "/v1/models", "/v1/models"]
    assert readiness.place == f"{server.url}/v1/models"


async def test_nobody_who_listens_is_neither(server: ListingServer) -> None:
    readiness = usual(server)
    server.close()
    assert await readiness.not_ready() == "the connection is refused"
    assert await readiness.not_answering() == "the connection is refused"
    assert readiness.place == f"{server.url}/health"


async def test_what_is_no_http_is_neither() -> None:
    with contextlib.ExitStack() as ends:
        listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        readiness = Readiness([f"http://127.0.0.1:{listener.getsockname()[1]}/"])
        ends.enter_context(_answering(listener, b"SSH-2.0-x\r\n"))
        assert await readiness.not_ready() == "it answers something that is no HTTP"


@contextlib.contextmanager
def _answering(listener: socket.socket, answer: bytes) -> Iterator[None]:
    """Let whoever connects first find this answer."""

    def accept() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=accept)
    thread.start()
    yield
    thread.join()
