"""The pytest plugin: real daemons for tests, each a process on a directory of its own.

    def test_my_router(discoveryd):
        discoveryd.drop({"display_name": "llama", "url": "http://127.0.0.1:8001"})
        assert my_router.pick("llama") == "http://127.0.0.1:8001"

pytest loads it where discoveryd is installed. Until a fixture is used it imports nothing but
pytest; what the fixtures give is `LocalDaemon` (local.py), and with the first of them starts the
process that forks them all (mother.py), one for each process of pytest.

The fixtures and the hook live here, and nothing else. They are plain functions: no loop, no thread,
nothing for the plugins that run coroutines to quarrel about.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from discoveryd.client.testing.local import LocalDaemon
    from discoveryd.client.testing.mother import DaemonFailed, Mother

__all__ = ["DaemonFailed", "Factory", "LocalDaemon"]

_HOMES = {
    "DaemonFailed": "discoveryd.client.testing.mother",
    "LocalDaemon": "discoveryd.client.testing.local",
}
_SHARED = {"discoveryd_session", "discoveryd_session_factory"}
_MOST_LINES = 200
_daemons = pytest.StashKey["list[LocalDaemon]"]()


class Factory(Protocol):
    """What `discoveryd_factory` is."""

    def __call__(self, **config: object) -> "LocalDaemon":
        """Start a daemon that is told `config`, and return it when it answers.

        The names are the keys of the configuration file. Raises DaemonFailed, with what the daemon
        says of them, where it does not start.
        """
        ...


@pytest.fixture
def discoveryd(discoveryd_factory: Factory) -> "LocalDaemon":
    """Give the test a discoveryd of its own, with an empty drop directory."""
    return discoveryd_factory()


@pytest.fixture
def discoveryd_factory(
    request: pytest.FixtureRequest, _discoveryd_mother: "Mother"
) -> Generator[Factory]:
    """Give a function that starts daemons, as in `start(aliases={"gpt-4o": "llama"})`."""
    with _starting(request, _discoveryd_mother) as start:
        yield start


@pytest.fixture(scope="session")
def discoveryd_session(discoveryd_session_factory: Factory) -> "LocalDaemon":
    """Give one discoveryd to all tests; what they drop stays until they remove it."""
    return discoveryd_session_factory()


@pytest.fixture(scope="session")
def discoveryd_session_factory(
    request: pytest.FixtureRequest, _discoveryd_mother: "Mother"
) -> Generator[Factory]:
    """Give what discoveryd_factory is, for fixtures of a module, say: `with factory() as daemon:`.

    Without `with`, daemons live until the session ends.
    """
    with _starting(request, _discoveryd_mother) as start:
        yield start


@pytest.fixture(scope="session")
def _discoveryd_mother() -> Generator["Mother"]:
    from discoveryd.client.testing.mother import Mother  # noqa: PLC0415 - see above

    with Mother() as mother:
        yield mother


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of its daemons to the report of a test that failed."""
    report = yield
    if report.failed:
        daemons = [*(item.stash.get(_daemons, None) or ())]
        if _SHARED.intersection(getattr(item, "fixturenames", ())):
            shared = item.session.stash.get(_daemons, None) or ()
            daemons += [daemon for daemon in shared if not daemon.closed]
        for daemon in daemons:
            report.sections.append((f"discoveryd log: {daemon.socket}", _end_of(daemon.log)))
    return report


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    return found


@contextmanager
def _starting(request: pytest.FixtureRequest, mother: "Mother") -> Generator[Factory]:
    """Give the function that starts daemons, and close at the end what it has started."""
    from discoveryd.client.testing.local import LocalDaemon  # noqa: PLC0415 - see above

    started = request.node.stash.setdefault(_daemons, [])
    with ExitStack() as ends:

        def start(**config: object) -> LocalDaemon:
            daemon = LocalDaemon(mother, config)
            ends.callback(daemon.close)
            started.append(daemon)
            daemon.start()
            return daemon

        yield start


def _end_of(log: str) -> str:
    lines = log.splitlines()
    left_out = len(lines) - _MOST_LINES
    told = [f"({left_out} lines before these)"] if left_out > 0 else []
    return "\n".join([*told, *lines[-_MOST_LINES:]])
