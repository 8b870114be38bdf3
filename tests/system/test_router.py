"""examples/router.py: every name reaches its workers, and who is refused is told why."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.dropping import Host, Json
from tests.system.routing import (
    Answer,
    Backend,
    Router,
    Workers,
    asking,
    begins,
    drops,
    floods,
    routing,
    says_who,
    streams,
    waits,
)
from tests.system.running import PROMPT_SECONDS, Daemon, until


@pytest.fixture(scope="module")
def router(shared_daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    log = tmp_path_factory.mktemp("router") / "log"
    with routing(shared_daemon.socket, log) as found:
        yield found


@pytest.fixture
def workers(host: Host, router: Router) -> Iterator[Workers]:
    with contextlib.closing(Workers(host, router)) as found:
        yield found


# Which worker


def test_primary_names_aliases_and_adapters_reach_their_own_workers(
    workers: Workers, router: Router
) -> None:
    one = workers.add("llama", aliases=["chat"], source_path="/m")
    two = workers.add("support-bot", source_path="/m")
    workers.put("legal", two.url, source_path="/m", lora={"name": "legal"})
    workers.settle()
    for name, backend in [("llama", one), ("chat", one), ("support-bot", two), ("legal", two)]:
        assert router.ask(name) == backend.name
        assert json.loads(backend.asked[-1].partition(b"\r\n\r\n")[2])["model"] == name


def test_the_worker_with_the_fewest_requests_is_asked_weighed(
    workers: Workers, router: Router
) -> None:
    heavy = workers.add("llama", waits, labels={"weight": "3"})
    light = workers.add("llama", waits)
    odd = workers.add("llama", waits, labels={"weight": "heavy"})
    none = workers.add("llama", waits, labels={"weight": "0"})
    workers.settle()
    with contextlib.ExitStack() as ends:
        for count in range(1, 11):
            ends.enter_context(contextlib.closing(router.begin(asking("llama"))))
            until(
                lambda: len(heavy.asked) + len(light.asked) + len(odd.asked) == count,  # noqa: B023
                "it is passed on",
            )
    assert [len(backend.asked) for backend in (heavy, light, odd, none)] == [6, 2, 2, 0]


def test_an_adapters_requests_count_for_its_server(workers: Workers, router: Router) -> None:
    one = workers.add("llama", waits, source_path="/m")
    two = workers.add("llama", waits, source_path="/m")
    workers.put("legal", two.url, source_path="/m", lora={"name": "legal"})
    workers.settle()
    with contextlib.closing(router.begin(asking("legal"))):
        until(lambda: len(two.asked) == 1, "the adapter is asked")
        with contextlib.closing(router.begin(asking("llama"))):
            until(lambda: len(one.asked) == 1, "the other server is asked")
    assert len(two.asked) == 1


def test_idle_workers_share_requests_that_come_one_by_one(workers: Workers, router: Router) -> None:
    names = {workers.add("llama").name for _ in range(2)}
    workers.settle()
    assert {router.ask("llama") for _ in range(30)} == names


def test_workers_behind_unix_sockets_are_reached(
    workers: Workers, router: Router, root: Path
) -> None:
    backend = workers.add("llama", unix=root / "worker")
    workers.settle()
    assert router.ask("llama") == backend.name
    assert backend.asked[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


def test_prefill_workers_are_not_asked(workers: Workers, router: Router) -> None:
    prefill = workers.add("deep", worker_type="prefill", needs=[["decode"]])
    decode = workers.add("deep", worker_type="decode", needs=[["prefill"]])
    workers.settle()
    assert {router.ask("deep") for _ in range(8)} == {decode.name}
    assert prefill.asked == []


def test_each_name_of_one_source_keeps_its_own_worker_while_the_other_leaves_and_returns(
    workers: Workers, host: Host, router: Router
) -> None:
    staying = workers.add("llama", source_path="/m")
    other = workers.add("support-bot", source_path="/m")
    workers.settle()
    ended = threading.Event()
    answers = set[bytes]()

    def keep_asking() -> None:
        while not ended.is_set():
            answers.add(router.ask("llama"))

    with ThreadPoolExecutor(2) as askers:
        asking_on = [askers.submit(keep_asking) for _ in range(2)]
        try:
            for _ in range(5):
                assert router.ask("support-bot") == other.name
                (card,) = (worker.file for worker in host.client.workers("support-bot").workers)
                host.remove(Path(card))
                workers.settle()
                assert router.refusal(asking("support-bot"))[0] == 404
                workers.put("support-bot", other.url, source_path="/m")
                workers.settle()
        finally:
            ended.set()
        for each in asking_on:
            each.result()
    assert answers == {staying.name}
    assert len(other.asked) == 5


# What goes through


def test_the_request_is_passed_on_as_it_is(workers: Workers, router: Router) -> None:
    body = b'{ "model":"llama", "x": 1.0000000000000000001,\n "model": "llama", "y": "\\u00e9" }'
    backend = workers.add("llama")
    workers.put("other", f"{backend.url}/base/", source_path="/o")
    workers.settle()
    headers = {"Authorization": "Bearer k", "Connection": "X-Hop, close", "X-Hop": "1", "TE": "x"}
    for sent in (body, body.replace(b"llama", b"other")):
        path = "/v1/a%2Fb/c?d=%20e"
        with contextlib.closing(router.begin(sent, headers, path)) as connection:
            assert connection.getresponse().read() == backend.name
    first, second = backend.asked
    head, _, received = first.partition(b"\r\n\r\n")
    assert received == body
    lines = head.lower().split(b"\r\n")
    assert head.startswith(b"POST /v1/a%2Fb/c?d=%20e HTTP/1.1\r\n")
    assert second.startswith(b"POST /base/v1/a%2Fb/c?d=%20e HTTP/1.1\r\n")
    assert {line.partition(b":")[0] for line in lines[1:]} == {
        b"host",
        b"authorization",
        b"accept-encoding",
        b"content-length",
    }
    assert f"host: {backend.url.removeprefix('http://')}".encode() in lines


def test_an_operators_alias_becomes_the_workers_own_name_and_all_else_stays(
    start: Start, root: Path
) -> None:
    config = root / "config.toml"
    config.write_text('[aliases]\n"gpt-4o" = "llama"\n')
    (root / "cards").mkdir()
    places = ["--cards", str(root / "cards"), "--socket", str(root / "s")]
    daemon = start([*places, "--config", str(config)]).wait_ready()
    with (
        daemon.client() as client,
        routing(daemon.socket, root / "router") as router,
        contextlib.closing(Workers(Host(daemon, client), router)) as workers,
    ):
        backend = workers.add("llama")
        workers.settle()
        assert "gpt-4o" in router.names()
        status, _ = router.post(b'{"x":1.000000000000000000001,"model":"gpt-4o","y":[1, 2]}')
        assert status == 200
        _, _, body = backend.asked[0].partition(b"\r\n\r\n")
        assert body == b'{"x":1.000000000000000000001,"model":"llama","y":[1, 2]}'


def test_a_stream_is_passed_on_piece_by_piece_untouched(workers: Workers, router: Router) -> None:
    backend = workers.add("llama", streams)
    workers.settle()
    with contextlib.closing(router.begin(asking("llama", stream=True))) as connection:
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        assert headers == {
            "content-type": "text/event-stream",
            "content-encoding": "odd",
            "x-own": "1",
            "transfer-encoding": "chunked",
        }
        for piece in (b"data: 1\n\n", b"dat", b"a: \xff\x00\r\n\n"):
            backend.pieces.put(piece)
            assert answer.read(len(piece)) == piece
        backend.pieces.put(b"")
        assert answer.read() == b""


@pytest.mark.parametrize("answer", [waits, begins])
def test_a_client_who_leaves_ends_the_request_at_the_worker(
    workers: Workers, router: Router, answer: Answer
) -> None:
    backend = workers.add("llama", answer)
    workers.settle()
    with contextlib.closing(router.begin(asking("llama"))):
        until(lambda: len(backend.asked) == 1, "it is asked")
    assert backend.left.wait(PROMPT_SECONDS)


def test_a_client_who_does_not_read_makes_the_worker_wait(workers: Workers, router: Router) -> None:
    backend = workers.add("llama", floods)
    workers.settle()
    with contextlib.closing(router.begin(asking("llama"))):
        assert backend.left.wait(2 * PROMPT_SECONDS)


def test_a_client_who_leaves_in_the_middle_of_his_question_harms_nobody(
    workers: Workers, router: Router
) -> None:
    workers.add("llama")
    workers.settle()
    connection = http.client.HTTPConnection("127.0.0.1", router.port)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"model"')
    connection.close()
    assert router.ask("llama")


# Workers that die


@pytest.mark.parametrize("dies", ["listens no longer", "closes"])
def test_another_worker_is_asked_where_one_is_dead(
    workers: Workers, router: Router, dies: str
) -> None:
    dead = workers.add("llama", drops, labels={"weight": "1000000"})
    alive = workers.add("llama")
    workers.settle()
    if dies == "listens no longer":
        dead.close()
    assert router.ask("llama") == alive.name
    assert len(dead.asked) == (dies == "closes")


def test_no_third_worker_is_asked(workers: Workers, router: Router) -> None:
    dead = [workers.add("llama", drops, labels={"weight": "1000000"}) for _ in range(2)]
    alive = workers.add("llama")
    workers.settle()
    status, code, _ = router.refusal(asking("llama"))
    assert (status, code) == (502, "worker_lost")
    assert [len(backend.asked) for backend in (*dead, alive)] == [1, 1, 0]


def test_the_only_worker_is_asked_again_where_it_closed_the_connection(
    workers: Workers, router: Router
) -> None:
    def drops_first(backend: Backend, connection: socket.socket) -> None:
        (drops if len(backend.asked) == 1 else says_who)(backend, connection)

    backend = workers.add("llama", drops_first)
    workers.settle()
    assert router.ask("llama") == backend.name


def test_the_worker_asked_instead_is_one_that_serves_by_then(
    workers: Workers, router: Router
) -> None:
    def waits_for_the_test(backend: Backend, _: socket.socket) -> None:
        assert backend.pieces.get() is None

    dying = workers.add("llama", waits_for_the_test)
    workers.settle()
    with contextlib.closing(router.begin(asking("llama"))) as connection:
        until(lambda: len(dying.asked) == 1, "it is asked")
        coming = workers.add("llama")
        workers.settle()
        dying.pieces.put(None)
        assert connection.getresponse().read() == coming.name


def test_half_an_answer_is_not_taken_for_a_whole_one(workers: Workers, router: Router) -> None:
    breaking, other = (
        workers.add("llama", streams, labels={"weight": "1000000"}),
        workers.add("llama"),
    )
    workers.settle()
    with contextlib.closing(router.begin(asking("llama"))) as connection:
        answer = connection.getresponse()
        breaking.pieces.put(b"half")
        assert answer.read(4) == b"half"
        breaking.pieces.put(None)
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    assert other.asked == []


# Refusals


def test_a_name_that_nobody_serves_is_explained(
    workers: Workers, host: Host, router: Router
) -> None:
    workers.put("llama", "http://127.0.0.1:1", source_path="/m", aliases=["chat"])
    card = {"display_name": "next", "aliases": ["chat"], "source_path": "/m"}
    assert host.put("next", card).standing == "refused"
    workers.settle()
    assert router.refusal(asking("Chat")) == (
        404,
        "model_not_found",
        "nobody serves Chat. did you mean chat?",
    )
    _, _, message = router.refusal(asking("next"))
    assert message.startswith("nobody serves next. next.json asks for it, but is refused: ")
    assert 'both ask for "chat"' in message
    assert router.refusal(asking("\x1b[31m"))[2] == "nobody serves \\u001b[31m"


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ({"accepting": False}, "all workers of deep are draining"),
        ({"worker_type": "decode", "needs": [["prefill"]]}, "deep waits for workers that it needs"),
        ({"url": "grpc://127.0.0.1:1"}, "no worker of deep has a weight above 0 and speaks HTTP"),
        ({"labels": {"weight": "0"}}, "no worker of deep has a weight above 0 and speaks HTTP"),
    ],
)
def test_a_name_that_cannot_be_asked_now_is_not_there_for_the_moment(
    workers: Workers, router: Router, card: Json, why: str
) -> None:
    workers.put("deep", **({"url": "http://127.0.0.1:1"} | card))
    workers.settle()
    status, code, message = router.refusal(asking("deep"))
    assert (status, code) == (503, "model_not_ready")
    assert message.startswith(why)
    assert "deep" not in router.names()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"model": 1}', b'{"model": "llama"', b"\xff", b'{"a":' + b"[" * 100_000],
    ids=["empty", "list", "no model", "number", "half", "no UTF-8", "deep"],
)
def test_a_body_without_a_model_is_a_bad_request(router: Router, body: bytes) -> None:
    status, code, message = router.refusal(body)
    assert (status, code) == (400, "invalid_body")
    assert message.startswith("the body must be a JSON object whose member `model` is a name: ")


def test_what_is_not_there_at_all_is_refused_in_the_same_shape(router: Router) -> None:
    with contextlib.closing(router.begin(b"", path="/v2")) as connection:
        answer = connection.getresponse()
        assert answer.status == 404
        assert json.loads(answer.read())["error"]["message"] == "Not Found"


def test_the_router_goes_on_without_a_daemon(start: Start, root: Path) -> None:
    daemon = start().wait_ready()
    with (
        daemon.client() as client,
        routing(daemon.socket, root / "router") as router,
        contextlib.closing(Workers(Host(daemon, client), router)) as workers,
    ):
        backend = workers.add("llama")
        workers.settle()
        daemon.stop()
        assert router.ask("llama") == backend.name
        status, code, message = router.refusal(asking("other"))
        assert (status, code) == (503, "discovery_unavailable")
        assert message.startswith("nobody was known to serve other, and discoveryd cannot be asked")


def test_a_router_that_finds_no_daemon_says_so(root: Path) -> None:
    router = Router(root / "none", root / "log")
    try:
        assert router.process.wait(40) == 1
    finally:
        router.kill()
    assert router.log.startswith("router: no discoveryd answers; tried:\n")
    assert "Traceback" not in router.log
