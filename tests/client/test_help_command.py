"""discoveryctl help: topics, pages with what is generated for them, and slips. Without a daemon."""

import os
import pty
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from discoveryd.client.ctl.cli import COMMANDS, command
from discoveryd.client.ctl.pages import INTERFACE, PAGES, read
from discoveryd.client.ctl.session import PROGRAM
from tests.client.ctl import USAGE, Ctl
from tests.client.fakes import FakeDaemon


def test_without_a_topic_each_is_listed_in_a_line(ctl: Ctl, daemon: FakeDaemon) -> None:
    found = ctl("help")
    assert (found.status, found.err) == (0, "")
    told = [line.split(None, 1) for line in found.out.splitlines() if line.startswith("  ")]
    assert told == [[name, page.summary] for name, page in PAGES.items()]
    assert "discoveryctl help COMMAND" in found.out
    assert ctl("help", "--json").json() == {"topics": {n: p.summary for n, p in PAGES.items()}}
    assert daemon.calls == []


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_is_shown_as_it_is_written(ctl: Ctl, topic: str) -> None:
    found = ctl("help", topic)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith("# ")
    assert found.out.startswith(read(PAGES[topic].file))
    assert found.out.isascii(), "so that every terminal shows it"
    assert ctl("help", topic, "--json").json() == {"topic": topic, "page": found.out}


def test_the_interface_is_shown_with_its_definition(ctl: Ctl) -> None:
    assert read(INTERFACE) in ctl("help", "interface").out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_topic_that_says_what_it_takes(ctl: Ctl, name: str) -> None:
    taken = [f"    {line}".rstrip() for line in ctl(name, "--help").out.splitlines()]
    for topic in (name, "commands"):
        shown = ctl("help", topic).out
        assert "\n".join(taken) in shown
        assert f"## discoveryctl {name}\n" in shown


@pytest.mark.parametrize(
    ("slip", "meant"), [("card", "cards"), ("Standings", "standings"), ("resolv", "resolve")]
)
def test_a_topic_that_is_nearly_right_is_guessed(ctl: Ctl, slip: str, meant: str) -> None:
    found = ctl("help", slip)
    assert (found.status, found.out) == (USAGE, "")
    assert f"There is no topic {slip!r}. Did you mean {meant}" in found.err


def test_a_topic_that_is_like_no_other_is_not_guessed(ctl: Ctl) -> None:
    found = ctl("help", "\x1bqqqqqq")
    assert (found.status, found.out) == (USAGE, "")
    assert found.err.endswith("There is no topic '\\x1bqqqqqq'. discoveryctl help lists them.\n")


def test_topics_are_completed() -> None:
    shell = ShellComplete(command, {}, PROGRAM, "_DISCOVERYCTL_COMPLETE")
    found = [(item.value, item.help) for item in shell.get_completions(["help"], "re")]
    assert found == [("restarts", PAGES["restarts"].summary), ("resolve", None), ("reload", None)]


def test_on_a_terminal_a_page_goes_through_the_pager() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from discoveryd.client.ctl.start import main; main()",
            "help",
            "http",
        ],
        stdin=theirs,
        stdout=theirs,
        env={**os.environ, "PAGER": "sed s/^/paged:/", "TERM": "xterm"},
    ) as program:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 1 << 16):
                shown += piece
        except OSError:  # how a terminal says that the other side has gone
            pass
    os.close(ours)
    assert program.returncode == 0
    assert shown.startswith(b"paged:# HTTP, for reading\r\n")
