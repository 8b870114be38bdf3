"""The command `discoveryd`: what reaches the daemon, and the exit status of what does not."""

import asyncio
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from discoveryd import __version__
from discoveryd.daemon.cli import main
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.systemd.notify import Notifier


async def end_at_once(_daemon: "Daemon") -> None:
    pass


class Daemon:
    """Stands in for the daemon: keeps what it is told and lives as it is told."""

    def __init__(self) -> None:
        self.told: list[Config] = []
        self.begins: Callable[[], None] = lambda: None
        self.lives: Callable[[Daemon], Awaitable[None]] = end_at_once
        self.loop = ""
        self.reloads = 0
        self.stopped = False
        self.reloaded = anyio.Event()
        self.passed: tuple[socket.socket, ...] = ()

    def __call__(
        self,
        config: Config,
        *,
        reconfigure: Callable[[], Config],
        notifier: Notifier,
        passed: tuple[socket.socket, ...],
    ) -> "Daemon":
        self.told.append(config)
        self.reconfigure, self.notifier, self.passed = reconfigure, notifier, passed
        self.begins()
        return self

    async def run(self) -> None:
        self.loop = type(asyncio.get_running_loop()).__module__
        await self.lives(self)

    async def reload(self) -> None:
        self.reloads += 1
        self.reloaded.set()

    def stop(self) -> None:
        self.stopped = True

    def summary(self) -> str:
        return "as ever"

    def silent(self) -> str | None:
        return None


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon()
    module = ModuleType("discoveryd.daemon.run")
    monkeypatch.setattr(module, "Daemon", daemon, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setitem(sys.modules, "discoveryd.daemon.run", module)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    for name in ("DISCOVERYD_CARDS", "DISCOVERYD_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    hangups = signal.getsignal(signal.SIGHUP)
    yield daemon
    signal.signal(signal.SIGHUP, hangups)
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


@pytest.mark.parametrize("grouped", [False, True])
def test_a_daemon_that_cannot_start_says_why_in_one_line_and_exits_1(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], grouped: bool
) -> None:
    async def fail(_daemon: Daemon) -> None:
        failure = StartError("the socket is\ntaken")
        raise ExceptionGroup("", [ExceptionGroup("", [failure])]) if grouped else failure

    daemon.lives = fail
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


def test_what_cannot_be_served_of_what_was_passed_in_is_told_before_anything_begins(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "many")
    assert main(["serve", "--cards", "/a"]) == 1
    assert "LISTEN_FDS" in capsys.readouterr().err
    assert daemon.told == []


def test_the_configuration_can_be_read_again_with_the_same_flags(
    daemon: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('cards = ["/from-file"]\n[aliases]\nx = "y"\n')
    assert main(["serve", "--cards", "/a", "--socket", "/s", "--config", str(file)]) == 0
    file.write_text('cards = ["/from-file"]\n[aliases]\nx = "z"\n')
    again = daemon.reconfigure()
    assert (again.cards, again.aliases) == (("/a",), {"x": "z"})
    file.write_text("nonsense")
    with pytest.raises(ConfigError):
        daemon.reconfigure()


async def until_reloaded(daemon: Daemon) -> None:
    with anyio.fail_after(10):
        await daemon.reloaded.wait()


def test_a_hangup_before_the_daemon_can_act_on_it_reloads_later(daemon: Daemon) -> None:
    """B105: the signal by itself would have killed the process."""
    daemon.begins = lambda: os.kill(os.getpid(), signal.SIGHUP)
    daemon.lives = until_reloaded
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0
    assert daemon.reloads == 1


def test_hangups_during_a_reload_are_followed_by_one_more(daemon: Daemon) -> None:
    async def lives(_daemon: Daemon) -> None:
        with anyio.fail_after(10):
            while daemon.reloads < 2:
                await anyio.sleep(0.01)

    async def reload() -> None:
        daemon.reloads += 1
        if daemon.reloads == 1:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGHUP)
                await anyio.sleep(0.05)

    daemon.begins = lambda: os.kill(os.getpid(), signal.SIGHUP)
    daemon.lives = lives
    daemon.reload = reload  # type: ignore[method-assign]  # another life
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0
    assert daemon.reloads == 2


def test_a_hangup_at_the_end_is_ignored(daemon: Daemon) -> None:
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0
    os.kill(os.getpid(), signal.SIGHUP)
    assert daemon.reloads == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_it_is_asked_to_end_by_a_signal(daemon: Daemon, number: signal.Signals) -> None:
    async def until_stopped(_daemon: Daemon) -> None:
        os.kill(os.getpid(), number)
        with anyio.fail_after(10):
            while not daemon.stopped:
                await anyio.sleep(0.01)

    daemon.lives = until_stopped
    assert main(["serve", "--cards", "/a", "--socket", "/s"]) == 0


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
