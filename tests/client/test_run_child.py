"""The command as a process: how it is started, what reaches it, how it is ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from discoveryd.client.running import launch
from discoveryd.client.running.command import Command
from tests.system.running import until
from tests.system.runs import lives

SECONDS = 30.0
"""Enough for what happens at once."""


def script(directory: Path, text: str) -> Command:
    """Start a script of the shell; return when it has come to its end, where it sleeps."""
    started = directory / "started"
    command = Command(["sh", "-c", f"{text}; touch {started}; while :; do sleep 0.01; done"])
    until(started.exists, "the script has come to its end")
    return command


def test_a_command_is_asked_to_end(directory: Path) -> None:
    command = script(directory, ":")
    command.end(SECONDS)
    assert command.ended
    assert command.status == 128 + signal.SIGTERM
    assert command.how == "was ended by signal 15 (Terminated)"


def test_a_command_that_does_not_end_is_killed_with_its_group(directory: Path) -> None:
    other = directory / "other"
    command = script(directory, f"trap '' TERM; sleep 1000 & echo $! >{other}")
    command.end(0.05)
    assert command.status == 128 + signal.SIGKILL
    until(lambda: not lives(int(other.read_text())), "what it has started has ended")


def test_a_command_that_has_ended_can_be_sent_signals_and_ended_again() -> None:
    command = Command(["sh", "-c", "exit 3"])
    until(lambda: command.ended, "it has ended")
    for number in (signal.SIGTERM, signal.SIGINT):
        command.send(number)
    command.kill()
    command.end(SECONDS)
    assert (command.status, command.how) == (3, "ended with status 3")


def test_a_command_has_no_terminal_that_could_signal_it(directory: Path) -> None:
    command = script(directory, f"echo $$ >{directory}/pid")
    try:
        pid = int((directory / "pid").read_text())
        assert os.getsid(pid) == pid
    finally:
        command.end(SECONDS)


def test_pythons_own_ignored_signals_are_not_inherited(directory: Path) -> None:
    command = script(directory, f"grep SigIgn /proc/self/status >{directory}/ignored")
    try:
        ignored = int((directory / "ignored").read_text().split()[1], 16)
    finally:
        command.end(SECONDS)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        assert not ignored & 1 << number - 1


@pytest.mark.parametrize("parent", [1, 2**22 + 1])
def test_a_command_whose_parent_has_died_meanwhile_is_not_started(
    directory: Path, parent: int
) -> None:
    words = [sys.executable, "-I", launch.__file__, str(parent), "touch", str(directory / "x")]
    done = subprocess.run(words, check=False, capture_output=True)
    assert done.returncode == 128 + signal.SIGTERM
    assert not (directory / "x").exists()
