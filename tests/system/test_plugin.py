"""The pytest plugin in projects of others: small suites, each run by a pytest of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.system.running import REPOSITORY, environment, short_directory, until

PLUGIN = "discoveryd.client.testing"
CARD = {"display_name": "llama", "aliases": ["chat"], "url": "http://127.0.0.1:8001"}

COUNTING = f"""
import json, os, pathlib, sys, threading
import pytest

CARD = {CARD!r}

@pytest.fixture
def card():
    return CARD

def counted():
    children = pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text()
    return {{
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": len(children.split()),
    }}

def pytest_sessionstart(session):
    session.before = counted()

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    told = {{"before": session.before, "after": counted(), "modules": sorted(sys.modules)}}
    (session.config.rootpath / f"{{name}}.counts").write_text(json.dumps(told))
"""

PLAIN = """
def test_served(discoveryd, card):
    assert discoveryd.drop(card).good
    assert discoveryd.resolve("chat").workers[0].url == card["url"]
"""

COROUTINE = """
from discoveryd.client import AsyncClient

{mark}
async def test_served(discoveryd, card):
    assert discoveryd.drop(card).good
    client = AsyncClient(discoveryd.socket)
    assert (await client.resolve("chat")).workers[0].url == card["url"]
    client.close()
    discoveryd.restart()
    assert discoveryd.resolve("chat").workers
"""

UNITTEST = """
import asyncio
import pytest

@pytest.fixture
def started(discoveryd_factory):
    async def start():
        return discoveryd_factory(aliases={"gpt-4o": "llama"})
    return asyncio.run(start())

def test_served_from_a_fixture_with_a_loop(started, card):
    started.drop(card)
    assert started.resolve("gpt-4o").workers
"""

FAILING = """
import os, signal
import pytest

@pytest.fixture(scope="module")
def shared(discoveryd_session_factory):
    with discoveryd_session_factory(log_level="info") as daemon:
        yield daemon

def test_passes(discoveryd):
    discoveryd.drop(b"{", "unseen.json")

def test_fails(discoveryd):
    discoveryd.drop(b"{", "own.json")
    assert False

def test_fails_with_many_lines(discoveryd):
    for number in range(250):
        discoveryd.drop(b"{", f"many-{number}.json")
    assert False

def test_fails_with_a_shared_one(shared):
    shared.drop(b"{", "shared.json")
    assert False

def test_is_told_nonsense(discoveryd_factory):
    discoveryd_factory(alias={"gpt-4o": "llama"})

def test_is_left_by_its_daemon(discoveryd):
    os.kill(discoveryd.pid, signal.SIGABRT)

def test_fails_without_one():
    assert False
"""

SHARED = """
def test_one(discoveryd_session, card):
    discoveryd_session.drop(card)

def test_two(discoveryd_session, discoveryd, tmp_path_factory):
    assert discoveryd_session.resolve("chat")
    assert discoveryd.client.list().names == ()
    assert discoveryd.pid != discoveryd_session.pid
"""

MANY = """
import pytest

@pytest.mark.parametrize("number", range(COUNT))
def test_each_has_its_own(discoveryd, card, number):
    assert discoveryd.client.list().names == ()
    assert discoveryd.drop(card | {"aliases": [str(number)]}).good
    assert discoveryd.resolve(str(number)).workers
"""


class Project:
    """A directory with a suite of tests, and a temporary directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root / "project"
        self.temporary = root / "t"
        for directory in (self.root, self.temporary):
            directory.mkdir()
        self.write("pytest.ini", "[pytest]\n")
        self.write("conftest.py", COUNTING)

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def run(self, *arguments: str, plugins: tuple[str, ...] = ()) -> tuple[int, str]:
        """Run pytest with these plugins and ours, and no others; return its status and output."""
        named = [part for plugin in (PLUGIN, *plugins) for part in ("-p", plugin)]
        kept = {k: v for k, v in environment().items() if not k.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *named, "-p", "no:cacheprovider", *arguments],
            cwd=self.root,
            env=kept | {"TMPDIR": str(self.temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=50,
        )
        return done.returncode, done.stdout

    def passes(self, count: int, *arguments: str, plugins: tuple[str, ...] = ()) -> None:
        """Run pytest; hold it to so many tests that pass, and none that does not."""
        status, output = self.run("-W", "error", *arguments, plugins=plugins)
        assert status == 0, output
        assert re.search(rf"^=+ {count} passed in ", output, re.MULTILINE), output

    def counts(self, worker: str = "main") -> dict[str, dict[str, int]]:
        """Return what a process of pytest counted in itself, before and after its tests."""
        told = json.loads((self.root / f"{worker}.counts").read_text())
        return {"before": told["before"], "after": told["after"]}

    def modules(self) -> set[str]:
        """Return what pytest had imported at its end."""
        return set(json.loads((self.root / "main.counts").read_text())["modules"])

    def processes(self) -> list[str]:
        """Return the processes that were started with this temporary directory."""
        mark = f"TMPDIR={self.temporary}".encode()
        found: list[str] = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (directory / "environ").read_bytes().split(b"\0"):
                    found.append((directory / "cmdline").read_text())
            except OSError:
                continue
        return found

    def sockets(self) -> list[str]:
        """Return the bound sockets below the temporary directory."""
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [line for line in lines if str(self.temporary) in line]


@pytest.fixture
def project() -> Iterator[Project]:
    with short_directory() as root:
        yield Project(root)


def test_pytest_loads_it_wherever_discoveryd_is_installed() -> None:
    (entry,) = entry_points(group="pytest11", name="discoveryd")
    assert entry.value == PLUGIN


@pytest.mark.parametrize("arguments", [["--co"], []], ids=["collected", "run"])
def test_it_imports_nothing_until_it_is_used(project: Project, arguments: list[str]) -> None:
    project.write("test_nothing.py", "def test_nothing(): pass\n")
    assert project.run(*arguments)[0] == 0
    ours = {name for name in project.modules() if name.startswith("discoveryd")}
    assert ours == {"discoveryd", "discoveryd.client", PLUGIN}
    assert not {"msgspec", "anyio", "asyncio", "click"} & project.modules()


def test_it_works_where_tests_have_no_loop(project: Project) -> None:
    project.write("test_plain.py", PLAIN)
    project.write("test_unittest.py", UNITTEST)
    project.passes(2)


def test_it_works_with_pytest_asyncio_in_strict_mode(project: Project) -> None:
    project.write(
        "pytest.ini",
        "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\n",
    )
    project.write("test_plain.py", PLAIN)
    mark = "import pytest\n\n@pytest.mark.asyncio"
    project.write("test_coroutine.py", COROUTINE.format(mark=mark))
    project.passes(2, plugins=("pytest_asyncio.plugin",))


def test_it_works_with_anyios_plugin_on_asyncio_and_trio(project: Project) -> None:
    project.write("test_plain.py", PLAIN)
    mark = "import pytest\n\n@pytest.mark.anyio"
    project.write("test_coroutine.py", COROUTINE.format(mark=mark))
    project.passes(3, plugins=("anyio.pytest_plugin",))


def test_one_daemon_may_be_shared_by_a_session(project: Project) -> None:
    project.write("test_shared.py", SHARED)
    project.passes(2)


def test_a_failure_is_reported_with_the_logs_of_its_daemons(project: Project) -> None:
    project.write("test_failing.py", FAILING)
    status, output = project.run()
    assert status == 1
    assert re.search(r"^=+ 5 failed, 2 passed, 1 error in ", output, re.MULTILINE), output
    heading = re.compile(r"^_{3,} (?:ERROR at teardown of )?(\w+) _{3,}$", re.MULTILINE)
    _, *parts = heading.split(output)
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    told["test_fails_without_one"] = told["test_fails_without_one"].partition("= short test")[0]
    assert "own.json is invalid" in told["test_fails"]
    assert "shared.json is invalid" in told["test_fails_with_a_shared_one"]
    assert "unknown key 'alias'" in told["test_is_told_nonsense"]
    assert "the daemon ended on SIGABRT" in told["test_is_left_by_its_daemon"]
    assert "serving on" in told["test_is_left_by_its_daemon"]
    assert "(51 lines before these)" in told["test_fails_with_many_lines"]
    assert "many-249.json" in told["test_fails_with_many_lines"]
    assert "discoveryd log" not in told["test_fails_without_one"]
    assert "unseen.json" not in output


def test_each_test_has_its_own_under_xdist_and_nothing_is_left(project: Project) -> None:
    count = 40
    project.write("test_many.py", MANY.replace("COUNT", str(count)))
    project.passes(count, "-n", "2", plugins=("xdist",))
    for worker in ("gw0", "gw1"):
        counts = project.counts(worker)
        assert counts["after"] == counts["before"]
    until(lambda: not project.processes(), "every process has ended")
    assert project.sockets() == []
    left = [path.name for path in project.temporary.iterdir()]
    assert [name for name in left if name.startswith("discoveryd-")] == []


def test_nothing_is_left_in_the_process_of_the_tests(project: Project) -> None:
    project.write("test_many.py", MANY.replace("COUNT", "3") + PLAIN + SHARED)
    project.passes(6)
    counts = project.counts()
    assert counts["after"] == counts["before"]


@pytest.fixture
def example(project: Project) -> Path:
    """Give a copy of the example."""
    return Path(shutil.copytree(REPOSITORY / "examples/ci", project.root / "ci"))


def test_the_suite_of_the_example_passes(project: Project, example: Path) -> None:
    (project.root / "conftest.py").unlink()
    collected = (example / "test_picker.py").read_text().count("\ndef test_")
    project.passes(collected, "-c", str(example / "pyproject.toml"), str(example))


def test_the_script_of_the_example_passes_and_leaves_nothing(
    project: Project, example: Path
) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [example / "smoke.sh"],
        env=environment(PATH=path, TMPDIR=str(project.temporary)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("smoke.sh: all is well\n")
    assert list(project.temporary.iterdir()) == []
    assert project.processes() == []
