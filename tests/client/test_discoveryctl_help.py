"""What discoveryctl says of itself: help, names that are nearly right, the schema, completion."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete

from discoveryd.client.ctl.cli import COMMANDS, command
from discoveryd.client.ctl.session import PROGRAM
from tests.client import fakes
from tests.client.ctl import USAGE, Ctl
from tests.client.fakes import FakeDaemon

SHELLS = ["bash", "fish", "zsh"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_a_command_what_its_own_help_says(name: str) -> None:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    assert found.name == name
    told = found.get_short_help_str(limit=200)
    assert told.removesuffix(".") == COMMANDS[name].summary.removesuffix(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(ctl: Ctl, name: str) -> None:
    found = ctl(name, "--help")
    assert (found.status, found.err) == (0, "")
    assert f"Usage: discoveryctl {name}" in found.out
    assert "--json" in found.out


def test_help_lists_every_command_in_order(ctl: Ctl) -> None:
    told = ctl("--help").out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in told if line.startswith("  ") and line[2:3].isalpha()][
        : len(COMMANDS)
    ] == list(COMMANDS)


@pytest.mark.parametrize(
    ("slip", "meant"), [("explian", "explain"), ("lst", "list"), ("Resolve", "resolve")]
)
def test_a_command_that_is_nearly_right_is_guessed(ctl: Ctl, slip: str, meant: str) -> None:
    found = ctl(slip, "x")
    assert (found.status, found.out) == (USAGE, "")
    assert f"There is no command {slip!r}. Did you mean {meant}" in found.err


def test_a_command_that_is_like_no_other_is_not_guessed(ctl: Ctl) -> None:
    found = ctl("\x1bqqqqqq")
    assert found.status == USAGE
    assert found.err.endswith("There is no command '\\x1bqqqqqq'.\n")


# The schema


def test_the_schema_is_one_of_cards(ctl: Ctl) -> None:
    found = ctl("schema")
    schema = json.loads(found.out)
    assert found.status == 0
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "display_name" in schema["$defs"]["flat"]["properties"]
    assert found.out.count("\n") > 100, "it is made to be read"
    assert ctl("schema", "--json").json() == schema


# Completion


def completions(*args: str, incomplete: str) -> list[tuple[str, str]]:
    """Return what is completed after these arguments, and whether it is a file."""
    shell = ShellComplete(command, {}, PROGRAM, "_DISCOVERYCTL_COMPLETE")
    found: list[CompletionItem] = shell.get_completions(list(args), incomplete)
    return [(item.value, item.type) for item in found]


@pytest.fixture
def _named(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVERYD_SOCKET", daemon.path)
    served = [fakes.name(name) for name in ("llama", "llava", "with blank", "$(x)", "\x1b", "m")]
    daemon.answer("List", {"names": served, "cursor": fakes.CURSOR})


@pytest.mark.usefixtures("_named")
class TestCompletion:
    def test_commands_begin_like_this(self) -> None:
        assert [value for value, _ in completions(incomplete="w")] == [
            name for name in COMMANDS if name.startswith("w")
        ]

    @pytest.mark.parametrize("args", [("resolve",), ("resolve", "--url"), ("workers", "--name")])
    def test_names_are_the_served_ones(self, args: tuple[str, ...]) -> None:
        found = completions(*args, incomplete="ll")
        assert found == [("llama", "plain"), ("llava", "plain")]

    def test_a_name_that_a_shell_would_take_apart_is_left_out(self) -> None:
        assert [value for value, _ in completions("resolve", incomplete="")] == [
            *("llama", "llava", "m")
        ]

    def test_a_name_or_file_is_a_file_where_no_name_begins_like_this(self) -> None:
        assert completions("explain", incomplete="l") == [("llama", "plain"), ("llava", "plain")]
        assert completions("explain", incomplete="./l") == [("./l", "file")]

    def test_a_file_is_completed_by_the_shell(self, daemon: FakeDaemon) -> None:
        assert completions("sync", incomplete="l") == [("l", "file")]
        assert daemon.calls == []

    def test_the_daemon_is_the_one_that_is_named(self, daemon: FakeDaemon) -> None:
        found = completions("--socket", daemon.path, "resolve", incomplete="m")
        assert found == [("m", "plain")]

    def test_without_a_daemon_it_is_silent(self, ctl: Ctl) -> None:
        assert completions("--socket", "/nowhere/at/all", "resolve", incomplete="m") == []
        assert ctl("completion", "bash").err == ""

    def test_a_daemon_that_is_silent_is_not_waited_for(self, daemon: FakeDaemon) -> None:
        daemon.scripts = [fakes.stay_silent]
        assert completions("resolve", incomplete="m") == []

    @pytest.mark.parametrize("shell", SHELLS)
    def test_each_shell_has_a_script(self, ctl: Ctl, shell: str) -> None:
        found = ctl("completion", shell)
        assert found.status == 0
        assert f"_DISCOVERYCTL_COMPLETE={shell}_complete" in found.out

    def test_another_shell_is_wrong_usage(self, ctl: Ctl) -> None:
        assert ctl("completion", "cmd").status == USAGE

    def test_bash_completes_with_it(self, ctl: Ctl, tmp_path: Path) -> None:
        """Word for word as bash does it, with a discoveryctl on the path."""
        if shutil.which("bash") is None:
            pytest.skip("NOT TESTED: there is no bash")
        (tmp_path / "script").write_text(ctl("completion", "bash").out)
        program = tmp_path / "discoveryctl"
        program.write_text(
            f"#!{sys.executable}\nfrom discoveryd.client.ctl.start import main\nmain()\n"
        )
        program.chmod(0o755)
        asked = (
            f"source {tmp_path}/script; COMP_WORDS=(discoveryctl resolve lla); COMP_CWORD=2;"
            '_discoveryctl_completion discoveryctl; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        environ = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": os.getcwd(),  # noqa: PTH109 - the package under test
        }
        done = subprocess.run(
            ["bash", "-c", asked], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["llama", "llava"]
