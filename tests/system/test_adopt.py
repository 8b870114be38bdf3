"""Servers that know nothing of discoveryd are served: adopted, kept in step, drained, withdrawn."""

import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.client.adopting.adopted import Place
from discoveryd.client.adopting.keeping import Server
from discoveryd.client.adopting.listings import Override
from discoveryd.interface import Verdict
from tests.client.listed import ANSWERS, ListingServer, answers, listing_server
from tests.system.adopting import Adopting, free_port
from tests.system.conftest import Start
from tests.system.dropping import Host
from tests.system.running import PROMPT_SECONDS, Daemon, environment, until

Serve = Callable[..., ListingServer]


class Heard:
    """Remembers what is told."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, str | None]] = []
        self.sentences: list[str] = []

    def card(
        self, url: str, change: str, names: Sequence[str], verdict: Verdict | None, why: str | None
    ) -> None:
        del url
        self.changes.append((change, names[0], why if verdict is None else verdict.standing))

    def server(self, url: str, sentence: str) -> None:
        del url
        self.sentences.append(sentence)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give a function that starts a server of the given kind, or of given answers."""
    with contextlib.ExitStack() as ends:

        def begin(given: str | dict[str, Any], port: int = 0) -> ListingServer:
            chosen = answers(given) if isinstance(given, str) else given
            return ends.enter_context(listing_server(chosen, port))

        yield begin


@pytest.fixture
def adopt(host: Host, tmp_path: Path) -> Iterator[Callable[..., Adopting]]:
    """Give a function that starts `discoveryctl adopt` for the shared daemon."""
    with contextlib.ExitStack() as ends:

        def begin(*arguments: str, piped: bool = False, **environ: str) -> Adopting:
            output = tmp_path / f"output{len(begun)}"
            adopting = Adopting(host.daemon, output, arguments, environ, piped=piped)
            ends.callback(adopting.kill)
            begun.append(adopting)
            return adopting

        begun: list[Adopting] = []
        yield begin


@contextlib.asynccontextmanager
async def adopted(
    daemon: Daemon, *urls: str, override: Override | None = None, patience: float = 5.0
) -> AsyncIterator[Heard]:
    """Adopt servers in this process, asking all the time; withdraw their cards at the end."""
    heard = Heard()
    place = Place(str(daemon.socket), PROMPT_SECONDS)
    async with anyio.create_task_group() as tasks:
        for url in urls:
            server = Server(
                url,
                place=place,
                tell=heard,
                override=override or Override(),
                every=0.02,
                patience=patience,
            )
            tasks.start_soon(server.keep, tasks)
        yield heard
        tasks.cancel_scope.cancel()


async def becomes(condition: Callable[[], bool], what: str) -> None:
    with anyio.move_on_after(PROMPT_SECONDS):
        while not condition():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"not in time: {what}")


def names(host: Host) -> set[str]:
    return {name.name for name in host.client.list().names}


def files(host: Host) -> list[Path]:
    return sorted(host.cards.glob("*.json"))


def models(*ids: str, **members: Any) -> dict[str, Any]:
    """Return a vLLM of these names, all of one source unless said otherwise."""
    shared = {"owned_by": "vllm", "root": "/models/m", "parent": None, **members}
    return {"/v1/models": {"object": "list", "data": [{"id": each} | shared for each in ids]}}


def test_two_servers_and_an_ollama_with_three_models_are_all_served(
    host: Host, serve: Serve, adopt: Callable[..., Adopting], tmp_path: Path
) -> None:
    vllm, sglang, ollama = serve("vllm"), serve("sglang"), serve("ollama")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "n"))
        systemd.settimeout(PROMPT_SECONDS)
        adopting = adopt(
            vllm.url, f"{sglang.url}/v1/", ollama.url, NOTIFY_SOCKET=str(tmp_path / "n")
        )
        assert b"READY=1" in systemd.recv(4096)
        # Ready means served: nothing is waited for here.
        served = {
            "llama": vllm,
            "chat": vllm,
            "llama-legal": vllm,
            "llama-code": vllm,
            "qwen3": sglang,
            "qwen3:support": sglang,
            "gemma3:latest": ollama,
            "gemma3": ollama,
            "nomic-embed-text:latest": ollama,
            "nomic-embed-text": ollama,
            "qwen3:4b": ollama,
        }
        assert names(host) == set(served)
        for name, server in served.items():
            assert [worker.url for worker in host.client.resolve(name).workers] == [server.url]
        kinds = {name.name: name.kind for name in host.client.list().names}
        assert kinds["llama-legal"] == kinds["qwen3:support"] == "adapter"
        assert adopting.end(signal.SIGTERM) == 0
        assert b"STOPPING=1" in systemd.recv(4096)
    assert files(host) == []
    assert names(host) == set()
    assert f"adopted llama (aliases chat) from {vllm.url} as {host.cards}/" in adopting.output
    assert "Traceback" not in adopting.output


@pytest.mark.parametrize("server", ANSWERS)
async def test_every_kind_of_server_is_adopted_without_a_warning(
    host: Host, serve: Serve, server: str
) -> None:
    kind = server.removesuffix("-router").removesuffix("-v0")
    async with adopted(host.daemon, serve(server).url) as heard:
        await becomes(lambda: bool(heard.changes), "adoption")
        count = int(heard.sentences[0].split()[2])
        await becomes(lambda: len(heard.changes) == count, "all cards")
    assert {change[::2] for change in heard.changes} == {("adopted", "serving")}
    assert heard.sentences[0].startswith(f"{kind} with ")
    assert files(host) == []


def test_interrupting_withdraws_everything(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    adopting = adopt(serve("vllm").url)
    until(lambda: "llama" in names(host), "adoption")
    assert adopting.end(signal.SIGINT) == 130
    assert files(host) == []


def test_after_a_kill_the_next_one_replaces_the_cards_that_were_left(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    server = serve("vllm")
    first = adopt(server.url)
    until(lambda: "llama-code" in names(host), "adoption")
    left = files(host)
    first.kill()
    until(lambda: names(host) == set(), "the death of the cards")
    assert files(host) == left
    second = adopt(server.url)
    until(lambda: "llama-code" in names(host), "adoption again")
    assert files(host) == left
    assert second.end(signal.SIGTERM) == 0


def test_a_server_that_is_adopted_already_is_told_and_taken_over_when_that_ends(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    server = serve(models("m"))
    first = adopt(server.url)
    until(lambda: names(host) == {"m"}, "adoption")
    second = adopt(server.url, "--timeout", "0.2")
    until(lambda: "is the card of another worker" in second.output, "the sentence")
    assert "cannot adopt m" in second.output
    assert len(files(host)) == 1
    assert first.end(signal.SIGTERM) == 0
    until(lambda: names(host) == {"m"}, "the other's turn", 2 * PROMPT_SECONDS)
    assert second.end(signal.SIGTERM) == 0
    assert files(host) == []


def test_cards_that_cannot_be_written_yet_are_told_and_tried_again(
    host: Host, serve: Serve, adopt: Callable[..., Adopting], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "cards"
    adopting = adopt(serve(models("m")).url, DISCOVERYD_CARDS=str(elsewhere))
    until(lambda: "cannot adopt m" in adopting.output, "the sentence")
    assert f"{elsewhere}: it is not there" in adopting.output
    elsewhere.symlink_to(host.cards)
    until(lambda: names(host) == {"m"}, "another try", 2 * PROMPT_SECONDS)
    assert adopting.output.count("cannot adopt") == 1
    assert adopting.end(signal.SIGTERM) == 0
    assert files(host) == []


def test_a_reader_that_has_seen_enough_ends_it_and_nothing_is_left(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    server = serve(models("m"))
    adopting = adopt(server.url, piped=True)
    until(lambda: names(host) == {"m"}, "adoption")
    adopting.stop_reading()
    server.answers = models("m", "also")
    assert adopting.wait() == 0
    assert files(host) == []
    assert adopting.output == ""


def test_each_change_is_a_line_of_json_if_that_is_asked_for(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    server = serve(models("m", "also"))
    adopting = adopt(server.url, "--json")
    until(lambda: "m" in names(host), "adoption")
    assert adopting.end(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in adopting.output.splitlines()]
    assert [line["change"] for line in lines] == ["server", "adopted"]
    assert lines[1]["url"] == server.url
    assert lines[1]["names"] == ["m", "also"]
    assert lines[1]["verdict"]["standing"] == "serving"


def test_a_name_an_alias_and_a_source_take_the_place_of_what_is_listed(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    adopt(serve("openai").url, "--name", "mine", "--alias", "ours", "--source", "/m")
    until(lambda: names(host) == {"mine", "ours"}, "adoption")
    (worker,) = host.client.resolve("ours").workers
    assert (worker.model, worker.source_path) == ("mine", "/m")


def test_a_name_for_several_models_is_wrong_usage(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    adopting = adopt(serve("ollama").url, "--name", "mine")
    assert adopting.wait() == 2
    assert "the server has 3 models" in adopting.output
    assert files(host) == []


def test_with_all_what_is_not_loaded_is_served_too(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    adopt(serve("ollama").url, "--all")
    until(lambda: {"llama3.2:1b", "gemma3:4b", "gemma3"} <= names(host), "adoption")


def test_the_key_is_sent_and_never_shown(
    host: Host, serve: Serve, adopt: Callable[..., Adopting]
) -> None:
    server = serve(models("m"))
    server.key = "s3cret"
    wrong = adopt(server.url, "--api-key-env", "KEY", KEY="0ther")
    until(lambda: "HTTP status 401" in wrong.output, "the refusal")
    assert "--api-key-env" in wrong.output
    assert wrong.end(signal.SIGTERM) == 0
    right = adopt(server.url, "--api-key-env", "KEY", KEY="s3cret")
    until(lambda: "m" in names(host), "adoption")
    (card,) = files(host)
    assert "s3cret" not in card.read_text()
    assert right.end(signal.SIGTERM) == 0
    assert "s3cret" not in right.output
    assert "0ther" not in right.output


async def test_two_servers_of_one_model_are_two_workers_of_it(host: Host, serve: Serve) -> None:
    servers = serve("vllm"), serve("vllm")
    wanted = {(name, server.url) for name in ("llama", "llama-legal") for server in servers}

    def found() -> set[tuple[str, str | None]]:
        return {(worker.model, worker.url) for worker in host.client.workers().workers}

    async with adopted(host.daemon, *(server.url for server in servers)):
        await becomes(lambda: wanted <= found(), "both")
        assert {worker.url for worker in host.client.resolve("chat").workers} == {
            server.url for server in servers
        }


async def test_what_is_listed_anew_is_served_and_what_has_gone_is_withdrawn(
    host: Host, serve: Serve
) -> None:
    server = serve(models("m"))
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: names(host) == {"m"}, "adoption")
        (file,) = files(host)
        server.answers = models("m", "also")
        await becomes(lambda: names(host) == {"m", "also"}, "the new alias")
        assert files(host) == [file]
        adapter = {"id": "a", "root": "/a", "parent": "m"}
        server.answers["/v1/models"]["data"].append(adapter)
        await becomes(lambda: names(host) == {"m", "also", "a"}, "the adapter")
        server.answers = models("other", root="/models/other")
        await becomes(lambda: names(host) == {"other"}, "the other model")
        await becomes(lambda: file not in files(host), "the file's end")
        server.answers = models()
        await becomes(lambda: files(host) == [], "the end")
    assert ("withdrew", "m", "it is no longer listed") in heard.changes


async def test_a_listing_that_stays_the_same_touches_no_file(host: Host, serve: Serve) -> None:
    server = serve("vllm")
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: len(heard.changes) == 3, "adoption")
        before = [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in files(host)]
        asked = len(server.asked)
        await becomes(lambda: len(server.asked) > asked + 5, "five more questions")
        after = [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in files(host)]
        assert before == after
        assert len(heard.changes) == 3
        assert len(heard.sentences) == 1


@pytest.mark.parametrize("silent", [True, False], ids=["no answer", "status 503"])
async def test_three_misses_drain_and_one_answer_takes_back(
    host: Host, serve: Serve, silent: bool
) -> None:
    server = serve(models("m"))

    def accepting() -> list[bool]:
        return [worker.accepting for worker in host.client.workers().workers]

    async with adopted(host.daemon, server.url, patience=1.0 if silent else 5.0) as heard:
        await becomes(lambda: accepting() == [True], "adoption")
        if silent:
            server.silent(True)
        else:
            server.status = 503
        await becomes(lambda: accepting() == [False], "draining")
        assert names(host) == {"m"}
        server.silent(False)
        server.status = None
        await becomes(lambda: accepting() == [True], "acceptance")
    drained = "three probes in a row have failed: its cards drain"
    assert heard.sentences.count(drained) == 1
    assert "it answers again: its cards accept" in heard.sentences


async def test_two_misses_change_nothing(host: Host, serve: Serve) -> None:
    server = serve(models("m"))
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: names(host) == {"m"}, "adoption")
        before = files(host)[0].stat().st_mtime_ns
        for _ in range(3):
            server.statuses = [503, 503]
            server.asked.clear()
            await becomes(lambda: len(server.asked) > 4, "more questions")
        assert server.statuses == []
        assert files(host)[0].stat().st_mtime_ns == before
        assert not [said for said in heard.sentences if "drain" in said]


async def test_an_operators_drain_is_let_be(host: Host, serve: Serve) -> None:
    server = serve(models("m"))
    async with adopted(host.daemon, server.url):
        await becomes(lambda: names(host) == {"m"}, "adoption")
        (file,) = files(host)
        card = json.loads(file.read_text())
        host.put(file.stem, card | {"accepting": False})
        asked = len(server.asked)
        await becomes(lambda: len(server.asked) > asked + 5, "five more questions")
        assert [worker.accepting for worker in host.client.workers().workers] == [False]


async def test_a_refused_connection_withdraws_until_somebody_listens_again(
    host: Host, serve: Serve
) -> None:
    server = serve("vllm")
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: len(names(host)) == 4, "adoption")
        server.close()
        await becomes(lambda: files(host) == [], "the withdrawal")
        assert ("withdrew", "llama", "the connection is refused") in heard.changes
        # Another kind of server at the same place is recognised anew.
        serve("sglang", server.port)
        await becomes(lambda: names(host) == {"qwen3", "qwen3:support"}, "the new server")


async def test_a_server_that_is_not_there_yet_may_come(host: Host, serve: Serve) -> None:
    port = free_port()
    async with adopted(host.daemon, f"http://127.0.0.1:{port}") as heard:
        await becomes(lambda: bool(heard.sentences), "the sentence")
        assert heard.sentences == ["nobody listens there; it is asked again"]
        server = serve(models("m"), port)
        await becomes(lambda: heard.changes == [("adopted", "m", "serving")], "adoption")
        assert server.asked


async def test_a_server_that_loads_yet_is_adopted_when_it_has_loaded(
    host: Host, serve: Serve
) -> None:
    server = serve("llama.cpp")
    server.status = 503
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: bool(heard.sentences), "the sentence")
        assert heard.sentences == ["it answers with HTTP status 503; it is asked again"]
        server.status = None
        await becomes(lambda: names(host) == {"small", "tiny"}, "adoption")


async def test_a_listing_that_turns_unreadable_leaves_the_cards_as_they_are(
    host: Host, serve: Serve
) -> None:
    server = serve(models("m"))
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: names(host) == {"m"}, "adoption")
        server.answers = {"/v1/models": b"<html>"}
        await becomes(lambda: len(heard.sentences) == 2, "the sentence")
        assert "it does not tell what it serves" in heard.sentences[1]
        server.answers = models("m", "also")
        await becomes(lambda: names(host) == {"m", "also"}, "the next listing")
        await becomes(
            lambda: [change for change, *_ in heard.changes] == ["adopted", "now"], "two lines"
        )


async def test_what_cannot_be_a_card_is_told_once_and_takes_nobody_along(
    host: Host, serve: Serve
) -> None:
    server = serve(models("good", "a\x1bb", "also"))
    async with adopted(host.daemon, server.url) as heard:
        await becomes(lambda: names(host) == {"good", "also"}, "adoption")
        asked = len(server.asked)
        await becomes(lambda: len(server.asked) > asked + 5, "five more questions")
    (told,) = [said for said in heard.sentences if "skipped" in said]
    assert told.startswith('entry 2 of its listing is skipped: its name "a\\u001bb" has control')


async def test_a_card_that_has_to_wait_is_told_and_served_when_it_may(
    host: Host, serve: Serve
) -> None:
    blocker = host.cards / "blocker.json"
    host.put("blocker", {"display_name": "other", "aliases": ["m"]})
    async with adopted(host.daemon, serve(models("m")).url) as heard:
        await becomes(lambda: bool(heard.changes), "the verdict")
        assert heard.changes == [("adopted", "m", "blocked")]
        blocker.unlink()
        await becomes(lambda: heard.changes[1:] == [("now", "m", "serving")], "its turn")


async def test_a_name_for_several_models_that_come_later_changes_nothing(
    host: Host, serve: Serve
) -> None:
    server = serve(models("m"))
    async with adopted(host.daemon, server.url, override=Override(name="mine")) as heard:
        await becomes(lambda: names(host) == {"mine"}, "adoption")
        server.answers = {
            "/v1/models": {"data": [{"id": "m", "root": "/m"}, {"id": "n", "root": "/n"}]}
        }
        await becomes(lambda: len(heard.sentences) == 2, "the sentence")
        assert heard.sentences[1] == "its cards stay as they are: the server has 2 models"
        assert names(host) == {"mine"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_adopted_cards_outlast_the_daemon(
    start: Start, serve: Serve, how: signal.Signals
) -> None:
    daemon = start().wait_ready()
    server = serve("vllm")
    async with adopted(daemon, server.url):
        with daemon.client() as client:
            await becomes(lambda: len(client.list().names) == 4, "adoption")
        daemon.send(how)
        daemon.wait_ended()
        server.answers["/v1/models"]["data"].pop()
        asked = len(server.asked)
        await becomes(lambda: len(server.asked) > asked + 5, "five more questions")
        daemon = start().wait_ready()
        with daemon.client() as client:
            # What changed meanwhile is applied; what did not has served since the first moment.
            assert "llama" in {name.name for name in client.list().names}
            await becomes(
                lambda: {n.name for n in client.list().names} == {"llama", "chat", "llama-legal"},
                "the three that are listed",
            )
    assert list(daemon.cards.glob("*.json")) == []


def test_without_a_daemon_it_says_so(tmp_path: Path, serve: Serve, start: Start) -> None:
    daemon = start().wait_ready()
    daemon.stop()
    adopting = Adopting(daemon, tmp_path / "output", [serve(models("m")).url], environment())
    assert adopting.wait() == 3
    assert "no discoveryd answers" in adopting.output
