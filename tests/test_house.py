"""The rules of the house, held by the tools that know them."""

import contextlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
MODULES = sorted((ROOT / "discoveryd").rglob("*.py"))
TOP_LEVEL = {"README.md", "discoveryd", "examples", "pyproject.toml", "systemd", "tests"}


COMMANDS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["pyright", "--pythonpath", sys.executable],
    ["lint-imports", "--no-cache"],
]


@pytest.fixture(scope="module")
def tools() -> Iterator[list[subprocess.Popen[str]]]:
    """Run all tools at once: the two that check types take a minute each, on one processor."""
    with contextlib.ExitStack() as ends:
        yield [
            ends.enter_context(
                subprocess.Popen(
                    [BIN / program, *arguments],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for program, *arguments in COMMANDS
        ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(c) for c in COMMANDS])
def test_the_tools_have_nothing_to_say(tools: list[subprocess.Popen[str]], number: int) -> None:
    said, _ = tools[number].communicate()
    assert tools[number].returncode == 0, said


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_say_what_lives_in_them(module: Path) -> None:
    text = module.read_text()
    assert text.count("\n") <= 350
    assert text.startswith(('"""', 'r"""'))


def test_nothing_else_lies_at_the_top_level() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so nobody knows which files are the project's")
    tops = {path.split("/")[0] for path in listed.stdout.split("\0") if path}
    assert {top for top in tops if not top.startswith(".")} <= TOP_LEVEL


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^python3 -m venv .*pytest$", readme, re.MULTILINE)
    assert len(commands) == 1
    assert commands[0].replace("pip install", "pip install -q") in (ROOT / ".ci/run").read_text()


def test_every_ignored_lint_rule_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    lint = tomllib.loads(text)["tool"]["ruff"]["lint"]
    ignored = [*lint["ignore"], *(r for rules in lint["per-file-ignores"].values() for r in rules)]
    assert ignored
    for rule in ignored:
        assert re.search(rf'"{rule}",\s+# \S', text), rule
