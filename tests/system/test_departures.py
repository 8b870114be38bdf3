"""The mission, whichever way worker 1 leaves."""

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.client import NoSuchModel
from tests.system.dropping import Host, Json, envelope, instance_record, store_name, write
from tests.system.dying import (
    HOLD_UNTIL_KILLED,
    KEEP_TOUCHING,
    SOURCE,
    Holding,
    python,
    reasons,
    serves,
)
from tests.system.raw import call
from tests.system.running import until
from tests.system.test_mission import Observer


class Worker1:
    """A way in which worker 1 lives and dies: what its card says, and what then goes on."""

    def __init__(self, rule: str, liveness: Json) -> None:
        self.rule = rule
        self.liveness = liveness

    def begin(self, host: Host, path: Path) -> None:
        """Keep it alive, once its card is there."""

    def die(self) -> None:
        """Let it die, once."""

    def end(self) -> None:
        """Leave nothing behind."""


class ByProcess(Worker1):
    def __init__(self) -> None:
        self._process = subprocess.Popen(["sleep", "600"])
        super().__init__("process_gone", {"pid": self._process.pid})

    def die(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class ByHold(Worker1):
    def __init__(self) -> None:
        super().__init__("not_held", {"held": True})

    def begin(self, host: Host, path: Path) -> None:
        self._holding = Holding(host.daemon.socket, str(path))
        assert self._holding.standings() == ["serving"]

    def die(self) -> None:
        self._holding.close()


class ByHoldingProcess(Worker1):
    """Killed with kill -9, the kernel ends its connection."""

    def __init__(self) -> None:
        super().__init__("not_held", {"held": True})

    def begin(self, host: Host, path: Path) -> None:
        asked = call("Hold", {"files": [str(path)]}, more=True)
        self._process = python(HOLD_UNTIL_KILLED, host.daemon.socket, asked[:-1].decode())
        until(lambda: serves(host, path), "the process holds its card")

    def die(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class ByLease(Worker1):
    def __init__(self) -> None:
        super().__init__("lease_expired", {"lease_seconds": 1})

    def begin(self, host: Host, path: Path) -> None:
        del host
        self._process = python(KEEP_TOUCHING, path)

    def die(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


WAYS: dict[str, Callable[[], Worker1]] = {
    "kill-9-of-its-pid": ByProcess,
    "hold-dropped": ByHold,
    "kill-9-of-its-holder": ByHoldingProcess,
    "lease-lapsed": ByLease,
}


def flat(host: Host, worker: int, name: str, members: Json) -> Path:
    url = f"http://127.0.0.1:{8000 + worker}"
    body = {"display_name": name, "source_path": SOURCE, "url": url, "component": "backend"}
    path = host.cards / f"worker-{worker}.json"
    write(path, body | members)
    return path


def dynamo(host: Host, worker: int, name: str, members: Json) -> Path:
    at = f"demo/backend/generate/7c3ed918996b7ee{worker}"
    write(host.instances / store_name(at), instance_record(at))
    path = host.mdc / store_name(at)
    write(path, envelope(at, {"display_name": name, "source_path": SOURCE}) | members)
    return path


@pytest.fixture
def worker_1(request: pytest.FixtureRequest) -> Iterator[Worker1]:
    worker = WAYS[request.param]()
    yield worker
    worker.end()


@pytest.mark.parametrize("worker_1", WAYS, indirect=True)
@pytest.mark.parametrize("put", [flat, dynamo])
def test_two_names_of_one_source_come_and_go_apart_however_worker_1_leaves(
    host: Host, put: Callable[[Host, int, str, Json], Path], worker_1: Worker1
) -> None:
    """B50: whoever died uncleanly is in no answer, and is explained."""
    one = put(host, 1, "alias-a", {"liveness": worker_1.liveness})
    two = host.verdict_of(put(host, 2, "alias-b", {}))
    host.verdict_of(one)
    worker_1.begin(host, one)
    assert serves(host, one)
    assert two.key
    observer = Observer(host.daemon.client, "alias-b", two.key)
    with observer.observing(), contextlib.closing(host.client.watch(name="alias-a")) as watched:
        (before,) = next(watched).changed
        worker_1.die()
        gone = next(watched)
        assert (gone.gone, gone.removed, gone.changed) == (("alias-a",), (before.key,), ())
        with pytest.raises(NoSuchModel) as missing:
            host.client.resolve("alias-a")
        (waiting,) = missing.value.waiting
        assert waiting.standing == "expired"
        assert reasons(waiting) == [worker_1.rule]
        assert [line.name for line in host.client.list().names] == ["alias-b"]

        # Another worker may have the name, and the key, as if the first had never been there.
        with contextlib.suppress(FileNotFoundError):
            one.unlink()
        third = host.verdict_of(put(host, 1, "alias-a", {}))
        assert third.standing == "serving"
        host.put("over", {"display_name": "over"})
    assert observer.faults == []
