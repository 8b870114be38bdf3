"""What the blocking client promises, against a daemon of canned answers."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import msgspec
import pytest

from discoveryd.client import (
    BadReply,
    CallRefused,
    Client,
    ConnectionLost,
    Cursor,
    NoSuchFile,
    NoSuchModel,
    Timeout,
    TooLarge,
)
from discoveryd.client.asking.locate import Candidate, connect, limit_waiting
from discoveryd.interface import Worker
from tests.client import fakes
from tests.client.fakes import (
    FakeDaemon,
    answer_once,
    end_at_once,
    frame,
    in_bytes,
    stay_silent,
)

PIECES = 3


Places = tuple[Candidate, ...]

RESOLVED = frame({"parameters": fakes.resolution()})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the clock by which the client keeps its deadlines: one number, which tests move."""
    now = [100.0]
    for module in ("blocking", "asking.wire"):
        stopped = SimpleNamespace(monotonic=lambda: now[0])
        monkeypatch.setattr(f"discoveryd.client.{module}.time", stopped)
    return now


def test_resolve_returns_the_workers(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        found = client.resolve("llama")
    assert (found.name, found.kind, found.ready, found.cursor) == (
        "llama",
        "primary",
        True,
        Cursor("e1", 7),
    )
    assert [worker.url for worker in found.workers] == ["http://127.0.0.1:8001"]
    assert daemon.asked() == [("Resolve", {"name": "llama"})]


def test_one_connection_serves_all_calls(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        for _ in range(5):
            client.resolve("llama")
    assert daemon.connections == 1


def test_threads_that_share_a_client_get_their_own_answers(daemon: FakeDaemon) -> None:
    asked, over = threading.Event(), threading.Event()

    def answer_late(connection: socket.socket) -> None:
        connection.recv(65536)
        asked.set()
        over.wait(10)
        connection.sendall(frame({"parameters": fakes.resolution(name="first")}))

    daemon.scripts = [answer_late]
    daemon.answer("Resolve", fakes.resolution(name="second"))
    with Client(daemon.path) as client, ThreadPoolExecutor(1) as threads:
        first = threads.submit(client.resolve, "first")
        asked.wait(10)
        assert client.resolve("second").name == "second"
        over.set()
        assert first.result(10).name == "first"


def test_a_closed_client_opens_another_connection(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        client.resolve("llama")
        client.close()
        client.resolve("llama")
    assert daemon.connections == 2


def test_members_that_are_absent_are_none_and_unknown_ones_ignored(daemon: FakeDaemon) -> None:
    strange = fakes.worker(novelty=1)
    del strange["url"]
    daemon.answer("Resolve", fakes.resolution(workers=[strange], novelty={}))
    with Client(daemon.path) as client:
        (worker,) = client.resolve("llama").workers
    assert worker.url is None


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_reply_may_arrive_in_any_pieces(daemon: FakeDaemon, size: int) -> None:
    daemon.scripts = [in_bytes(RESOLVED, size)]
    with Client(daemon.path) as client:
        assert client.resolve("llama").name == "llama"


def test_the_pieces_of_a_list_are_joined(daemon: FakeDaemon) -> None:
    daemon.answer(
        "List", *({"names": [fakes.name(str(n))], "cursor": fakes.CURSOR} for n in range(PIECES))
    )
    with Client(daemon.path) as client:
        assert [name.name for name in client.list().names] == ["0", "1", "2"]
    assert daemon.calls[0]["more"] is True


def test_the_pieces_of_workers_are_joined(daemon: FakeDaemon) -> None:
    pieces = ({"workers": [fakes.worker(str(n))], "cursor": fakes.CURSOR} for n in range(PIECES))
    daemon.answer("ListWorkers", *pieces)
    with Client(daemon.path) as client:
        assert [worker.instance for worker in client.workers().workers] == ["0", "1", "2"]
    assert daemon.calls[0]["more"] is True


def test_the_pieces_of_an_explanation_are_joined(daemon: FakeDaemon) -> None:
    pieces = ({"verdicts": [fakes.verdict(str(n))], "cursor": fakes.CURSOR} for n in range(PIECES))
    daemon.answer("Explain", *pieces)
    with Client(daemon.path) as client:
        assert [verdict.file for verdict in client.explain().verdicts] == ["0", "1", "2"]
    assert daemon.calls[0]["more"] is True


@pytest.mark.parametrize(
    ("ask", "method", "parameters"),
    [
        (lambda c: c.workers(), "ListWorkers", {}),
        (lambda c: c.workers("a"), "ListWorkers", {"name": "a"}),
        (lambda c: c.workers(namespace="n"), "ListWorkers", {"namespace": "n"}),
        (lambda c: c.explain(), "Explain", {}),
        (lambda c: c.explain(file="f"), "Explain", {"file": "f"}),
        (lambda c: c.explain(name="a"), "Explain", {"name": "a"}),
        (lambda c: c.check({"a": 1}), "Check", {"card": {"a": 1}}),
        (lambda c: c.check(msgspec.Raw(b'{"a":1}'), "f"), "Check", {"card": {"a": 1}, "file": "f"}),
        (lambda c: c.sync(), "Sync", {}),
        (lambda c: c.sync("f", "g"), "Sync", {"files": ["f", "g"]}),
        (lambda c: c.history(), "History", {}),
        (lambda c: c.history("f", limit=3), "History", {"file": "f", "limit": 3}),
        (lambda c: c.history(name="a"), "History", {"name": "a"}),
        (lambda c: c.reload(), "Reload", {}),
    ],
)
def test_only_parameters_that_are_given_are_sent(
    daemon: FakeDaemon, ask: Callable[[Client], object], method: str, parameters: dict[str, object]
) -> None:
    daemon.answer(method, **fakes.failure("x.y.Z"))
    with Client(daemon.path) as client, pytest.raises(CallRefused):
        ask(client)
    assert daemon.asked() == [(method, parameters)]


def test_check_returns_the_verdict_and_what_would_yield(daemon: FakeDaemon) -> None:
    reply = {"verdict": fakes.verdict(), "would_displace": ["/f"], "cursor": fakes.CURSOR}
    daemon.answer("Check", reply)
    with Client(daemon.path) as client:
        found = client.check({"display_name": "x"})
    assert (found.verdict.standing, found.would_displace) == ("refused", ("/f",))


def test_sync_returns_verdicts_and_counts(daemon: FakeDaemon) -> None:
    reply = {"verdicts": [fakes.serving()], "standings": {"serving": 1}, "cursor": fakes.CURSOR}
    daemon.answer("Sync", reply)
    with Client(daemon.path) as client:
        found = client.sync("/cards/1.json")
    assert found.verdicts[0].good
    assert found.standings == {"serving": 1}


def test_status_is_read(daemon: FakeDaemon) -> None:
    daemon.answer("GetStatus", fakes.status())
    with Client(daemon.path) as client:
        assert client.status().directories[0].path == "/cards"


def test_reload_returns_what_changed_and_what_did_not(daemon: FakeDaemon) -> None:
    daemon.answer("Reload", {"changed": ["quota is 3 now"], "problems": ["it cannot be read"]})
    with Client(daemon.path) as client:
        found = client.reload()
    assert (found.changed, found.problems) == (("quota is 3 now",), ("it cannot be read",))


def test_no_such_model_carries_what_the_daemon_taught(daemon: FakeDaemon) -> None:
    taught = fakes.no_such_model("x", similar=["y"], waiting=[fakes.verdict()], more_waiting=2)
    daemon.answer("Resolve", **taught)
    with Client(daemon.path) as client, pytest.raises(NoSuchModel) as caught:
        client.resolve("x")
    assert (caught.value.model, caught.value.similar, caught.value.more_waiting) == ("x", ("y",), 2)
    assert caught.value.waiting[0].reasons[0].rule == "different_source"


def test_no_such_file_names_the_file(daemon: FakeDaemon) -> None:
    daemon.answer("Explain", **fakes.failure("NoSuchFile", file="f"))
    with Client(daemon.path) as client, pytest.raises(NoSuchFile) as caught:
        client.explain(file="f")
    assert caught.value.file == "f"


def test_too_large_says_by_how_much(daemon: FakeDaemon) -> None:
    daemon.answer("Sync", **fakes.failure("TooLarge", bytes=9, limit=8))
    with Client(daemon.path) as client, pytest.raises(TooLarge) as caught:
        client.sync()
    assert (caught.value.bytes, caught.value.limit) == (9, 8)


def test_another_error_keeps_its_name_and_members(daemon: FakeDaemon) -> None:
    invalid = fakes.failure("org.varlink.service.InvalidParameter", parameter="name")
    daemon.answer("Resolve", **invalid)
    with Client(daemon.path) as client, pytest.raises(CallRefused) as caught:
        client.resolve("x")
    assert caught.value.name == "org.varlink.service.InvalidParameter"
    assert caught.value.parameters == {"parameter": "name"}


def test_the_connection_survives_an_error_reply(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", **fakes.no_such_model())
    daemon.answer("GetStatus", fakes.status())
    with Client(daemon.path) as client:
        with pytest.raises(NoSuchModel):
            client.resolve("x")
        assert client.status().healthy
    assert daemon.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"not json\0",
        b"[]\0",
        b'{"parameters":{"name":1}}\0',
        b'{"error":"io.discoveryd.Models.NoSuchModel"}\0',
        b'{"continues":true}\0',
    ],
)
def test_an_answer_that_is_not_the_interfaces_is_a_bad_reply(
    daemon: FakeDaemon, reply: bytes
) -> None:
    daemon.scripts = [in_bytes(reply, len(reply))]
    with Client(daemon.path) as client, pytest.raises(BadReply):
        client.resolve("x")


def test_an_unfit_answer_does_not_disturb_the_next_call(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", {"name": 1})
    with Client(daemon.path) as client:
        with pytest.raises(BadReply):
            client.resolve("x")
        daemon.answer("Resolve", fakes.resolution())
        assert client.resolve("llama").ready


def test_a_call_that_got_nothing_is_sent_once_more(daemon: FakeDaemon) -> None:
    daemon.scripts = [end_at_once]
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        assert client.resolve("llama").ready
    assert daemon.connections == 2


def test_a_connection_that_ended_while_idle_is_replaced(daemon: FakeDaemon) -> None:
    daemon.scripts = [answer_once(RESOLVED)]
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        client.resolve("llama")
        assert client.resolve("llama").ready
    assert daemon.connections == 2


def test_a_daemon_that_closes_with_the_call_unread_has_ended(daemon: FakeDaemon) -> None:
    def close_unread(connection: socket.socket) -> None:
        connection.recv(1, socket.MSG_PEEK)

    daemon.scripts = [close_unread]
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client:
        assert client.resolve("llama").ready


def test_a_call_is_not_sent_a_third_time(daemon: FakeDaemon) -> None:
    daemon.scripts = [end_at_once, end_at_once, end_at_once]
    with Client(daemon.path) as client, pytest.raises(ConnectionLost):
        client.resolve("llama")
    assert daemon.connections == 2


def test_the_kernel_is_told_the_time_once_for_many_calls(
    daemon: FakeDaemon, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float | None] = []

    def note(connection: socket.socket, seconds: float | None) -> None:
        told.append(seconds)
        limit_waiting(connection, seconds)

    monkeypatch.setattr("discoveryd.client.asking.wire.limit_waiting", note)
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path, timeout=10) as client:
        for _ in range(20):
            client.resolve("llama")
            clock[0] += 3.0
    assert len(told) == 1
    assert 10 <= (told[0] or 0) <= 10.01


def test_sending_again_does_not_begin_the_time_anew(daemon: FakeDaemon, clock: list[float]) -> None:
    def end_late(connection: socket.socket) -> None:
        connection.recv(65536)
        clock[0] += 11.0

    daemon.scripts = [end_late]
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path, timeout=10) as client:
        with pytest.raises(Timeout):
            client.resolve("llama")
        assert client.resolve("llama").ready


def test_connecting_is_part_of_the_time(
    daemon: FakeDaemon, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_late(places: Places, timeout: float | None) -> tuple[socket.socket, str]:
        clock[0] += 11.0
        return connect(places, timeout)

    monkeypatch.setattr("discoveryd.client.blocking.connect", connect_late)
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path, timeout=10) as client, pytest.raises(Timeout):
        client.resolve("llama")


def test_a_daemon_that_takes_nothing_times_out(daemon: FakeDaemon) -> None:
    enough = threading.Event()

    def take_nothing(_: socket.socket) -> None:
        enough.wait(10)

    daemon.scripts = [take_nothing]
    with Client(daemon.path, timeout=0.1) as client, pytest.raises(Timeout):
        client.check({"filler": "x" * 1_000_000})
    enough.set()


def test_a_daemon_that_trickles_its_input_times_out_as_a_whole(daemon: FakeDaemon) -> None:
    enough = threading.Event()

    def trickle(connection: socket.socket) -> None:
        while not enough.wait(0.01):
            connection.recv(1000)

    daemon.scripts = [trickle]
    with Client(daemon.path, timeout=0.3) as client, pytest.raises(Timeout):
        client.check({"filler": "x" * 10_000_000})
    enough.set()


def test_an_end_inside_a_reply_is_an_error(daemon: FakeDaemon) -> None:
    daemon.scripts = [answer_once(RESOLVED[:-5])]
    with Client(daemon.path) as client, pytest.raises(ConnectionLost):
        client.resolve("llama")
    assert daemon.connections == 1


def test_an_end_between_the_pieces_of_a_list_is_an_error(daemon: FakeDaemon) -> None:
    piece = {"parameters": {"names": [], "cursor": fakes.CURSOR}, "continues": True}
    daemon.scripts = [answer_once(frame(piece))]
    with Client(daemon.path) as client, pytest.raises(ConnectionLost):
        client.list()
    assert daemon.connections == 1


def test_a_silent_daemon_times_out(daemon: FakeDaemon) -> None:
    daemon.scripts = [stay_silent]
    with Client(daemon.path, timeout=0.05) as client, pytest.raises(Timeout):
        client.resolve("llama")


def test_a_timeout_is_a_timeout_error(daemon: FakeDaemon) -> None:
    daemon.scripts = [stay_silent]
    with Client(daemon.path, timeout=0.05) as client, pytest.raises(TimeoutError):
        client.resolve("llama")


def test_a_trickling_daemon_times_out_as_a_whole(daemon: FakeDaemon) -> None:
    enough = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.recv(65536)
        while not enough.wait(0.01):
            connection.sendall(b" ")

    daemon.scripts = [trickle]
    with Client(daemon.path, timeout=0.3) as client, pytest.raises(Timeout):
        client.resolve("llama")
    enough.set()


def test_a_late_answer_is_not_taken_for_the_next_calls(daemon: FakeDaemon) -> None:
    timed_out = threading.Event()

    def late(connection: socket.socket) -> None:
        connection.recv(65536)
        timed_out.wait(10)
        connection.sendall(frame({"parameters": fakes.resolution(name="late")}))

    daemon.scripts = [late]
    daemon.answer("Resolve", fakes.resolution(name="new"))
    with Client(daemon.path, timeout=0.2) as client:
        with pytest.raises(Timeout):
            client.resolve("late")
        timed_out.set()
        assert client.resolve("new").name == "new"


def test_a_slow_reply_does_not_shorten_the_time_of_the_next_call(daemon: FakeDaemon) -> None:
    go_on = threading.Event()

    def slowly(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(RESOLVED[:10])
        go_on.wait(10)
        connection.sendall(RESOLVED[10:])
        connection.recv(65536)
        connection.sendall(RESOLVED)
        connection.recv(1)

    daemon.scripts = [slowly]
    threading.Timer(0.2, go_on.set).start()
    with Client(daemon.path, timeout=20) as client:
        client.resolve("llama")
        assert client.resolve("llama").ready


def test_without_timeout_it_waits(daemon: FakeDaemon) -> None:
    daemon.scripts = [in_bytes(RESOLVED, 100)]
    with Client(daemon.path, timeout=None) as client:
        assert client.resolve("llama").ready


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Client(timeout=timeout)


def test_a_call_may_be_larger_than_the_sockets_buffer(daemon: FakeDaemon) -> None:
    daemon.answer("Check", **fakes.failure("x.y.Z"))
    with Client(daemon.path) as client, pytest.raises(CallRefused):
        client.check({"filler": "x" * 1_000_000})
    assert len(daemon.calls[0]["parameters"]["card"]["filler"]) == 1_000_000


def test_a_big_reply_is_read(daemon: FakeDaemon) -> None:
    many = [fakes.worker(str(n)) for n in range(20_000)]
    daemon.answer("Resolve", fakes.resolution(workers=many))
    with Client(daemon.path) as client:
        found = client.resolve("llama")
    assert len(found.workers) == 20_000


def test_reading_a_big_reply_takes_time_in_proportion_to_its_size(daemon: FakeDaemon) -> None:
    def seconds(megabytes: int) -> float:
        reply = frame({"parameters": fakes.resolution(name="x" * (megabytes << 20))})
        taken: list[float] = []
        for _ in range(3):
            daemon.scripts = [answer_once(reply)]
            start = time.process_time()
            with Client(daemon.path, timeout=30) as client:
                client.resolve("llama")
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(32) < 8 * seconds(4) * 4, "8 times the bytes took more than 32 times as long"


def test_watch_yields_the_state_and_every_change(daemon: FakeDaemon) -> None:
    daemon.answer(
        "Watch",
        fakes.watched(reset=True, changed=[fakes.worker()], names=[fakes.name()]),
        fakes.watched(),
        fakes.watched(removed=["k"], gone=["llama"]),
        fakes.watched(),
    )
    with Client(daemon.path) as client, closing(client.watch(Cursor("e0", 3), "llama")) as replies:
        first, heartbeat, second = (next(replies) for _ in range(3))
    assert first.reset
    assert isinstance(first.changed[0], Worker)
    assert [reply.heartbeat for reply in (first, heartbeat, second)] == [False, True, False]
    assert (second.removed, second.gone) == (("k",), ("llama",))
    since = {"epoch": "e0", "revision": 3}
    assert daemon.asked() == [("Watch", {"since": since, "name": "llama"})]
    assert daemon.calls[0]["more"] is True


def test_a_watch_leaves_the_client_free_for_other_calls(daemon: FakeDaemon) -> None:
    daemon.answer("Watch", fakes.watched(), fakes.watched())
    daemon.answer("Resolve", fakes.resolution())
    with Client(daemon.path) as client, closing(client.watch()) as replies:
        next(replies)
        assert client.resolve("llama").ready
        next(replies)
    assert daemon.connections == 2


def test_a_watch_that_the_daemon_ends_raises_and_is_not_sent_again(daemon: FakeDaemon) -> None:
    going_on = {"parameters": fakes.watched(), "continues": True}
    daemon.scripts = [answer_once(frame(going_on))]
    with Client(daemon.path) as client:
        replies = client.watch()
        next(replies)
        with pytest.raises(ConnectionLost):
            next(replies)
    assert daemon.connections == 1


def test_a_watch_of_a_silent_daemon_times_out(daemon: FakeDaemon) -> None:
    daemon.scripts = [stay_silent]
    with Client(daemon.path, timeout=0.05) as client, pytest.raises(Timeout):
        next(client.watch())


def test_a_watch_waits_longer_for_changes_than_for_the_first_answer(daemon: FakeDaemon) -> None:
    def slow_change(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(frame({"parameters": fakes.watched(), "continues": True}))
        threading.Event().wait(1.5)
        changed = {"parameters": fakes.watched(gone=["x"]), "continues": True}
        connection.sendall(frame(changed))

    daemon.scripts = [slow_change]
    with Client(daemon.path, timeout=1) as client, closing(client.watch()) as replies:
        next(replies)
        assert next(replies).gone == ("x",)


def test_an_error_to_watch_is_raised(daemon: FakeDaemon) -> None:
    daemon.answer("Watch", **fakes.failure("org.varlink.service.InvalidParameter"))
    with Client(daemon.path) as client, pytest.raises(CallRefused):
        next(client.watch())


def test_hold_yields_verdicts_until_it_is_closed(daemon: FakeDaemon) -> None:
    stream = daemon.stream()
    stream.put(verdicts=[fakes.serving()], cursor=fakes.CURSOR)
    with Client(daemon.path) as client:
        replies = client.hold("a.json", "/cards/b.json")
        assert next(replies).verdicts[0].good
        stream.put(verdicts=[fakes.verdict()], cursor=fakes.CURSOR)
        assert next(replies).verdicts[0].standing == "refused"
        assert not stream.over.is_set()
        replies.close()
        assert stream.over.wait(10)
    assert daemon.asked() == [("Hold", {"files": ["a.json", "/cards/b.json"]})]
    assert daemon.calls[0]["more"] is True


def test_a_hold_that_the_daemon_ends_raises(daemon: FakeDaemon) -> None:
    stream = daemon.stream()
    stream.put(verdicts=[], cursor=fakes.CURSOR)
    stream.end()
    with Client(daemon.path) as client:
        replies = client.hold("a.json")
        next(replies)
        with pytest.raises(ConnectionLost):
            next(replies)


def test_what_may_not_be_held_is_refused(daemon: FakeDaemon) -> None:
    daemon.answer("Hold", **fakes.failure("org.varlink.service.PermissionDenied"))
    with Client(daemon.path) as client, pytest.raises(CallRefused) as caught:
        next(client.hold("a.json"))
    assert caught.value.name == "org.varlink.service.PermissionDenied"
