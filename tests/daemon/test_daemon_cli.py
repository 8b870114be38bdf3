"""The command `discoveryd`: what reaches the daemon, and the exit status of what does not."""

import asyncio
import logging
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from discoveryd import __version__
from discoveryd.daemon.cli import main
from discoveryd.daemon.config import Config
from discoveryd.daemon.errors import StartError


class Daemon:
    """Stands in for the daemon: keeps what it is told and ends as it is told."""

    def __init__(self) -> None:
        self.told: list[Config] = []
        self.ends: Callable[[], int] = lambda: 0
        self.loop = ""

    async def serve(self, config: Config) -> int:
        self.told.append(config)
        self.loop = type(asyncio.get_running_loop()).__module__
        return self.ends()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon()
    module = ModuleType("discoveryd.daemon.run")
    monkeypatch.setattr(module, "serve", daemon.serve, raising=False)
    monkeypatch.setitem(sys.modules, "discoveryd.daemon.run", module)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    for name in ("DISCOVERYD_CARDS", "DISCOVERYD_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield daemon
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_flags_reach_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[aliases]\nx = "y"\n')
    flags = ["--cards", "/a", "--cards", "/b", "--dynamo", "/d", "--dynamo", "/e"]
    flags += ["--socket", "/s", "--state", "/l", "--config", str(file), "--log-level", "Warning"]
    assert main(["serve", *flags]) == 0
    [told] = daemon.told
    assert told == Config(
        cards=("/a", "/b"),
        dynamo=("/d", "/e"),
        socket="/s",
        state="/l",
        aliases={"x": "y"},
        log_level="warning",
    )
    assert logging.getLogger().level == logging.WARNING


def test_it_runs_under_uvloop(daemon: Daemon) -> None:
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0
    assert daemon.loop == "uvloop"


def test_it_runs_without_uvloop_too(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0
    assert daemon.loop.startswith("asyncio")


def test_default_directories_are_made(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["serve"]) == 0
    assert (tmp_path / "discoveryd" / "cards").is_dir()
    assert daemon.told[0].default_socket


def test_a_named_directory_is_not_made(daemon: Daemon, tmp_path: Path) -> None:
    assert main(["serve", "--cards", str(tmp_path / "x"), "--socket", "/s"]) == 0
    assert len(daemon.told) == 1
    assert not (tmp_path / "x").exists()


def test_the_daemon_s_exit_status_is_the_command_s(daemon: Daemon) -> None:
    daemon.ends = lambda: 7
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 7


@pytest.mark.parametrize("grouped", [False, True])
def test_a_daemon_that_cannot_start_says_why_in_one_line_and_exits_1(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], grouped: bool
) -> None:
    def fail() -> int:
        failure = StartError("the socket is\ntaken")
        raise ExceptionGroup("", [ExceptionGroup("", [failure])]) if grouped else failure

    daemon.ends = fail
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 1
    assert capsys.readouterr().err == "discoveryd: the socket is\\ntaken\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["serve", "--card", "/a"], "No such option"),
        (["serve", "extra"], "unexpected extra argument"),
        (["serv"], "No such command"),
        (["serve", "--log-level", "loud"], "'loud' is not one of"),
        (["serve", "--cards", ""], "--cards: '' is no path"),
        (["serve", "--config", "/nowhere.toml"], "there is no configuration file /nowhere.toml"),
    ],
)
def test_usage_and_configuration_errors_are_one_line_and_exit_2(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("discoveryd: ")
    assert complaint in line
    assert daemon.told == []


def test_without_a_command_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "serve" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "discoveryd", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"discoveryd {__version__}\n"
