"""Workers and their files: whose they are, where they go, and what others do to them."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from discoveryd.client.workers.blocking_worker import Worker
from discoveryd.client.workers.publication import Taken
from discoveryd.client.workers.publishing import CannotWrite, publish
from discoveryd.client.workers.worker import AsyncWorker, NotServing
from discoveryd.interface import Verdict
from tests.client.users import NOBODY, needs_root, nobody
from tests.system.conftest import Start
from tests.system.dropping import Host
from tests.system.running import REPOSITORY, environment, until
from tests.system.working import BACKENDS, LLAMA, WORK, card, files, run, serves


@pytest.fixture
def socket(host: Host) -> str:
    return str(host.daemon.socket)


# Whose file it is


def test_the_card_of_a_worker_that_lives_is_not_replaced(host: Host, socket: str) -> None:
    with Worker(LLAMA, socket=socket) as first:
        before = Path(first.path).read_bytes()
        with pytest.raises(Taken, match="the card of another worker, which lives"):
            Worker(LLAMA, socket=socket, patience=1.0).__enter__()
        assert Path(first.path).read_bytes() == before
        assert serves(host)


def test_a_worker_waits_for_the_one_before_it_to_go(host: Host, socket: str) -> None:
    with Worker(LLAMA, socket=socket):
        serving: list[Verdict] = []

        def follow() -> None:
            with Worker(card(labels={"life": "second"}), socket=socket, patience=30) as second:
                serving.append(second.verdict)

        follower = threading.Thread(target=follow)
        follower.start()
        follower.join(0.3)
        assert serving == []
    follower.join(20)
    assert [verdict.standing for verdict in serving] == ["serving"]
    assert files(host) == []


def test_what_drains_is_replaced_and_its_end_leaves_the_successor_alone(
    host: Host, socket: str
) -> None:
    first = Worker(LLAMA, socket=socket)
    with first:
        first.accept(False)
        second = Worker(LLAMA, socket=socket, patience=20)
        second.__enter__()
        with pytest.raises(Taken, match="has been replaced"):
            first.update(LLAMA)
        first.accept(False)
    try:
        assert files(host) == ["llama@127.0.0.1_8001.json"]
        (worker,) = host.client.resolve("llama").workers
        assert worker.accepting
        assert second.connected
    finally:
        second.__exit__(None, None, None)
    assert files(host) == []


def test_a_card_that_depends_on_no_life_is_replaced(host: Host, socket: str) -> None:
    host.put("llama@127.0.0.1_8001", LLAMA)
    with Worker(LLAMA, socket=socket, patience=20) as worker:
        assert worker.verdict.standing == "serving"
    assert files(host) == []


def test_an_edit_by_hand_is_withdrawn_with_the_worker(host: Host, socket: str) -> None:
    with Worker(LLAMA, socket=socket) as worker:
        path = Path(worker.path)
        edited = json.loads(path.read_bytes()) | {"aliases": ["chat"]}
        publish(edited, path.name, str(path.parent))
        until(lambda: serves(host, "chat"), "the edit is served")
        worker.accept(False)
        (line,) = host.client.workers("chat").workers
        assert not line.accepting
    assert files(host) == []


def test_what_another_put_in_its_place_stays(host: Host, socket: str) -> None:
    with Worker(LLAMA, socket=socket) as worker:
        path = Path(worker.path)
        publish({"display_name": "other"}, path.name, str(path.parent))
        until(lambda: serves(host, "other"), "the other card is served")
    assert files(host) == [path.name]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_card_that_is_removed_is_told_and_an_update_publishes_it_again(
    host: Host, socket: str, backend: str
) -> None:
    async def main() -> None:
        async with AsyncWorker(LLAMA, socket=socket) as worker:
            Path(worker.path).unlink()
            verdict = await worker.changed()
            assert (verdict.standing, verdict.serves) == ("gone", "nothing")
            assert [reason.rule for reason in verdict.reasons] == ["removed"]
            with pytest.raises(NotServing, match="removed by somebody else"):
                await worker.serving()
            assert (await worker.update(LLAMA)).standing == "serving"
            assert serves(host)

    run(backend, main)
    assert files(host) == []


# Where cards go


def test_the_environment_says_where_the_directory_is_mounted(
    host: Host, socket: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "mounted").symlink_to(host.cards)
    monkeypatch.setenv("DISCOVERYD_CARDS", str(root / "mounted"))
    with Worker(LLAMA, socket=socket) as worker:
        assert worker.path == str(root / "mounted/llama@127.0.0.1_8001.json")
        assert worker.verdict.standing == "serving"
        assert worker.verdict.file == str(host.cards / "llama@127.0.0.1_8001.json")


def test_a_directory_that_the_daemon_does_not_watch_is_told_and_left_as_it_was(
    socket: str, root: Path
) -> None:
    with pytest.raises(CannotWrite, match="the daemon does not look into "):
        Worker(LLAMA, socket=socket, directory=str(root)).__enter__()
    assert list(root.iterdir()) == []


def test_of_several_directories_the_first_is_taken_and_a_file_of_that_name_elsewhere_is_let_be(
    root: Path, start: Start
) -> None:
    places = [root / "a", root / "b"]
    for place in places:
        place.mkdir()
    flags = [part for place in places for part in ("--cards", str(place))]
    daemon = start([*flags, "--socket", str(root / "s")]).wait_ready()
    publish({"display_name": "other"}, "card.json", str(root / "b"))
    with Worker(LLAMA, socket=str(daemon.socket), file="card.json") as worker:
        assert worker.path == str(root / "a/card.json")
        assert worker.verdict.model == "llama"
    assert (root / "b/card.json").exists()


@needs_root
def test_another_users_card_is_not_taken_over(host: Host, socket: str) -> None:
    host.put("llama@127.0.0.1_8001", LLAMA)
    with Worker(card(8002), socket=socket):
        """Imports everything that the other user may not read."""
    host.daemon.root.chmod(0o755)
    host.cards.chmod(0o1777)
    host.daemon.socket.chmod(0o666)
    try:
        with nobody():
            with pytest.raises(
                CannotWrite, match=r"8001\.json belongs to root: give yours another"
            ):
                Worker(LLAMA, socket=socket).__enter__()
            with Worker(card(8002), socket=socket) as worker:
                assert worker.verdict.owner_uid == NOBODY
    finally:
        host.cards.chmod(0o755)
        host.daemon.root.chmod(0o700)
        host.daemon.socket.chmod(0o600)
    assert files(host) == ["llama@127.0.0.1_8001.json"]
    assert serves(host)


COVERED = """
mount --bind "$1" "$2" && mount -t tmpfs none "$1" && exec "$3" -c "$4"
"""


def test_in_a_container_that_has_the_directory_elsewhere_the_file_is_named_barely(
    host: Host, socket: str, root: Path
) -> None:
    if not shutil.which("unshare"):
        pytest.skip("NOT TESTED: there is no unshare here")
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: no namespace of its own for mounts here: {tried.stderr}")
    mounted = root / "mounted"
    mounted.mkdir()
    program = WORK.replace(", waiting=True", f", socket={socket!r}")
    inside = ["sh", "-c", COVERED, "-", str(host.cards), str(mounted), sys.executable, program]
    with subprocess.Popen(
        ["unshare", "-m", *inside],
        cwd=REPOSITORY,
        env=environment(DISCOVERYD_CARDS=str(mounted)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"serving\n"
        assert files(host) == ["llama@127.0.0.1_8001.json"]
        assert serves(host)
        worker.send_signal(signal.SIGINT)
        worker.wait(20)
    assert files(host) == []
