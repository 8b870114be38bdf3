"""What to do about a card that does not serve: something for every rule, and ready to be copied."""

import ast
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from discoveryd.client.ctl.cli import COMMANDS
from discoveryd.client.ctl.cli import command as program
from discoveryd.client.ctl.mending import Mend, in_shell, mends
from discoveryd.client.ctl.session import Session
from discoveryd.core.text import display_path
from discoveryd.interface import Verdict
from tests.client import fakes

ROOT = Path(__file__).parent.parent.parent / "discoveryd"


def named_rules() -> set[str]:
    """Return every rule that the daemon's code names."""
    found: set[str] = set()
    for module in [*ROOT.glob("core/**/*.py"), *ROOT.glob("daemon/**/*.py")]:
        for node in ast.walk(ast.parse(module.read_text())):
            given: list[ast.expr] = []
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                given = [word.value for word in node.keywords if word.arg == "rule"]
                given += node.args[:1] if called in ("fault", "_refuse") else []
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("_RULE"):
                given = [node.value]
            found.update(
                part.value
                for value in given
                for part in ast.walk(value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
    return found


RULES = sorted(named_rules())


def verdict(rule: str, file: str = "/cards/x.json", **members: Any) -> Verdict:
    reason = {"rule": rule, "message": "so it is", "against": ["/cards/1.json"], **members}
    return msgspec.convert(fakes.verdict(file, reasons=[reason]), Verdict)


def commands(found: list[Mend]) -> list[str]:
    return [command for mend in found for command in mend.commands]


def test_the_rules_are_found() -> None:
    assert len(RULES) > 25
    assert {"not_json", "name_taken", "symbolic_link", "not_a_file", "quota"} <= set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_way_out_with_a_command(rule: str) -> None:
    assert commands(mends(verdict(rule, field="f", found="a", expected="b")))


def assert_taken(name: str, *arguments: str) -> None:
    """Hold that there is such a command, and that it takes these arguments."""
    assert name in COMMANDS
    found = program.get_command(click.Context(program), name)
    assert found is not None
    found.make_context(name, list(arguments), obj=Session())


@pytest.mark.parametrize("rule", RULES)
def test_the_commands_are_of_discoveryctl_or_of_every_system(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.json", "1.json", "FILE", "card.json"):
        (tmp_path / name).touch()
    named: dict[str, Any] = {"file": f"{tmp_path}/x.json", "against": [f"{tmp_path}/1.json"]}
    for members in ({}, {"field": "f", "found": "a symbolic link", "expected": "1000"}):
        for command in commands(mends(verdict(rule, **named, **members))):
            word, *arguments = shlex.split(command.removeprefix("sudo "))
            if word == "discoveryctl":
                assert_taken(*arguments)
            else:
                assert word in ("chmod", "chown", "cp", "find", "mv", "rm", "touch")


@pytest.mark.parametrize("rule", RULES)
def test_words_lead_to_the_commands_and_are_printable(rule: str) -> None:
    for mend in mends(verdict(rule, field="\x1b", found="\x1b", expected="\x1b")):
        assert mend.words.isprintable()
        assert not mend.words.endswith((":", "."))
        assert all(command.isprintable() for command in mend.commands)


def test_faults_of_one_kind_have_one_way_out() -> None:
    reason = {"rule": "missing", "message": "so it is", "against": []}
    both = fakes.verdict(reasons=[reason, {**reason, "rule": "wrong_type"}])
    assert commands(mends(msgspec.convert(both, Verdict))) == ["discoveryctl sync /cards/x.json"]


def test_a_card_that_is_not_dropped_yet_is_checked() -> None:
    assert commands(mends(verdict("not_json"), supposed=True)) == [
        "discoveryctl check /cards/x.json"
    ]


def test_who_stands_by_is_told_which_member_to_change_and_what_to_drain() -> None:
    differs = {"field": "context_length", "found": "8192", "expected": "32768"}
    rivals = ["/cards/1.json", "/cards/2.json"]
    beside, instead = mends(verdict("other_fingerprint", **differs, against=rivals))
    assert "give this card their context_length, 32768" in beside.words
    assert instead.commands == (
        "discoveryctl drain llama",
        "discoveryctl withdraw /cards/1.json",
        "discoveryctl withdraw /cards/2.json",
    )


@pytest.mark.parametrize(
    "name",
    [
        b"x.json",
        b"a b's $(reboot).json",
        b"\xff.json",
        b"back\\slash's.json",
        "\u202eodd\n\U000e0041.json".encode(),
        "größe.json".encode(),
    ],
)
def test_a_shell_gets_the_very_file(tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    word = in_shell(display_path(path))
    assert word.isprintable()
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, env=environ, check=True
    )
    assert done.stdout == path
