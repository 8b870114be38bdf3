"""The README and the pages of the reference: what they say is there, and does what they say.

The README's tour is test_readme.py's, word for word; its section on services is run in a box, by
tests/systemd.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from discoveryd.client.ctl import cli as ctl
from discoveryd.client.ctl.pages import PAGES
from discoveryd.client.ctl.session import Session
from discoveryd.core.parsing import cards, schema
from discoveryd.core.verdict import Standing
from discoveryd.daemon import cli as daemon_cli
from discoveryd.daemon.configuration import file as configuration_file
from tests.system.reference import (
    FILES,
    PACKAGE,
    PROGRAMS,
    ROOT,
    Line,
    blocks,
    command_rows,
    inline,
    inline_lines,
    rows,
    shell_lines,
    simple_commands,
    text_of,
)
from tests.system.running import Daemon, environment, short_directory

ROOTS = {"discoveryctl": ctl.command, "discoveryd": daemon_cli.command}
SHELL_LINES = list({line.written: line for line in shell_lines()}.values())
ALL_LINES = [
    *shell_lines(),
    *inline_lines(),
    *(line for row in command_rows() for line in row.lines),
]
OURS = list(
    {
        line.typed: line
        for line in reversed(ALL_LINES)  # so that the README's count: the first
        if any(Path(words[0]).name in PROGRAMS for words in simple_commands(line.written))
    }.values()
)

ONLY_PARSED = {
    "python3 -m venv": "installs the package, and serves the tour's cards: so does the tour's test",
    "discoveryd serve": "serves until it is told to end: test_lifecycle, and test_config of flags",
    "discoveryctl run": "starts a model server, which is not here: test_run, with a stand-in",
    "discoveryctl adopt": "asks model servers, which are not here: test_adopt, with stand-ins",
    "discoveryctl export nginx --output /etc": "goes on until it is ended: test_export",
    "discoveryctl export litellm --output": "goes on until it is ended: test_export",
    "discoveryctl watch": "goes on until it is ended: test_discoveryctl_following",
    "discoveryctl publish": "changes the cards: test_publish_commands",
    "discoveryctl withdraw": "changes the cards: test_publish_commands",
    "discoveryctl drain": "changes the cards: test_publish_commands",
    "discoveryctl undrain": "changes the cards: test_publish_commands",
}
"""Beginnings of command lines that are not run here, and why not."""

TOUR = "run word for word by test_readme"
SAYS_NO = {"doctor", "explain"}
"""These may find something: of the example cards one is refused, and a host is never perfect."""

LITELLM = "test_export, with a real LiteLLM where there is one"

ELSEWHERE = {
    "cat": LITELLM,
    "cp": "a service: tests/systemd",
    "curl": "test_http asks at these paths",
    "do": LITELLM,
    "docker": "test_containers, with namespaces of its own",
    "done": LITELLM,
    "groupdel": "a service: tests/systemd",
    "install": "test_the_directories_of_a_shared_host_are_made, below",
    "ln": "a service: tests/systemd",
    "mkdir": "a service: tests/systemd; and the tour",
    "mv": "the tour",
    "pip": "a service: tests/systemd",
    "python": "test_router and test_router_clients",
    "python3": ".ci/run; and a service: tests/systemd",
    "rm": "a service: tests/systemd",
    "sed": "the tour",
    "systemctl": "a service: tests/systemd",
    "systemd-sysusers": "a service: tests/systemd",
    "systemd-tmpfiles": "a service: tests/systemd",
    "userdel": "a service: tests/systemd",
    "wait": LITELLM,
    "while": LITELLM,
}
"""Other programs in the blocks, and who runs them."""


def why_not_run(line: Line) -> str | None:
    """Return why a command line is not run here; None if it is."""
    if line.file == "README.md" and f"\n$ {line.written}\n" in FILES[0].read_text():
        return TOUR
    for beginning, reason in ONLY_PARSED.items():
        if re.match(rf"{re.escape(beginning)}(?![\w-])", line.written):
            return reason
    return None


RUN = sorted(line.typed for line in OURS if why_not_run(line) is None)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory that looks like a clone."""
    directory = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", directory / "examples")
    return directory


@pytest.fixture(scope="module")
def daemon(clone: Path) -> Iterator[Daemon]:
    """Give a daemon that serves the example cards."""
    with short_directory() as root:
        places = ["--cards", str(clone / "examples/cards"), "--socket", str(root / "s")]
        daemon = Daemon(root, places)
        try:
            yield daemon.wait_ready()
            daemon.stop()
        finally:
            daemon.kill()


# Command lines


def parse(words: list[str]) -> str:
    """Parse a command line as its program does; return the command's name."""
    program = Path(words[0]).name
    root = ROOTS[program]
    context = click.Context(root, info_name=program, obj=Session())
    name, command, rest = root.resolve_command(context, words[1:])
    assert command is not None
    assert name is not None
    try:
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:  # of --help
        pass
    except click.MissingParameter:
        # A name alone speaks of the command, and is nothing to be typed.
        assert not rest, words
    return name


@pytest.mark.parametrize("line", OURS, ids=lambda line: line.typed)
def test_a_command_line_is_one_of_the_program(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether files are there is not what is asked: they are the reader's.
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _param, _ctx: value)
    ours = [w for w in simple_commands(line.typed) if Path(w[0]).name in PROGRAMS]
    assert [parse(words) for words in ours]


@pytest.mark.parametrize("typed", RUN)
def test_a_command_line_can_be_typed(typed: str, clone: Path, daemon: Daemon) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", typed],
        cwd=clone,
        env=environment(PATH=path, DISCOVERYD_SOCKET=str(daemon.socket)),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    no = 1 if SAYS_NO & set(typed.split()) else 0
    assert done.returncode in (0, no), done.stderr
    assert done.stdout or re.search(r">|eval|--output", typed)
    assert "Traceback" not in done.stderr


def test_every_reason_not_to_run_is_needed() -> None:
    reasons = {why_not_run(line) for line in OURS} - {None, TOUR}
    assert reasons == set(ONLY_PARSED.values())
    assert len(RUN) > 30


def test_the_readme_tells_of_every_command_and_of_its_options() -> None:
    told: list[str] = []
    for row in command_rows():
        names = [line.written.split()[1] for line in row.lines]
        told += names
        commands = [ctl.command.get_command(click.Context(ctl.command), name) for name in names]
        known = {opt for command in commands if command for p in command.params for opt in p.opts}
        assert set(row.options) <= known, names
    assert sorted(set(told)) == sorted(ctl.COMMANDS)


@pytest.mark.parametrize("name", ["run", "adopt", "export"])
def test_a_commands_page_names_only_options_that_it_has(name: str) -> None:
    command = ctl.command.get_command(click.Context(ctl.command), name)
    assert command is not None
    named = {code.split()[0] for code in inline(text_of(PAGES[name].file)) if code[:2] == "--"}
    assert named
    assert named <= {opt for param in command.params for opt in param.opts}


def test_the_readme_starts_litellm_as_the_page_does_that_is_run_with_a_real_one() -> None:
    page, readme = text_of("client/exporting/export.md"), FILES[0].read_text()
    for language in ("sh", "yaml"):
        (block,) = (b for b in blocks(page, language) if "litellm" in b or "master_key" in b)
        assert block in readme


@pytest.mark.parametrize("line", SHELL_LINES, ids=lambda line: line.written)
def test_every_other_command_is_run_by_somebody(line: Line) -> None:
    for words in simple_commands(line.written):
        program = Path(words[0]).name
        assert program in PROGRAMS or program in ELSEWHERE, words


def test_the_directories_of_a_shared_host_are_made(tmp_path: Path) -> None:
    lines = [line for line in SHELL_LINES if line.written.startswith("install ")]
    assert len(lines) == 2
    for line in lines:
        typed = line.written.replace("/srv", str(tmp_path)).replace("inference", str(os.getgid()))
        subprocess.run(["bash", "-c", typed], check=True)
        mode = (tmp_path / "cards").stat().st_mode & 0o7777
        assert f" {mode:o} " in typed


# Blocks


def every(language: str) -> list[str]:
    """Return each block of the language once."""
    return list(dict.fromkeys(b for file in FILES for b in blocks(file.read_text(), language)))


@pytest.mark.parametrize("text", every("toml"))
def test_the_daemon_takes_a_configuration(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp  # noqa: PLC0415 - only to stand in for a host that has these users
    import pwd  # noqa: PLC0415 - the same

    me, mine = pwd.getpwuid(os.getuid()), grp.getgrgid(os.getgid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: me)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: mine)
    (tmp_path / "config.toml").write_text(text)
    written = configuration_file.read_file(str(tmp_path / "config.toml"), {}, 0)
    assert written != configuration_file.Written()


@pytest.mark.parametrize("text", every("json"))
def test_an_example_card_is_one_without_a_warning(text: str) -> None:
    parsed = cards.parse_card(text.encode(), stem="example")
    assert not parsed.warnings


@pytest.mark.parametrize("code", every("python"))
def test_what_an_example_in_python_imports_is_there(code: str) -> None:
    compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = re.findall(r"^(?:import|from) .*$", code, re.MULTILINE)
    exec("\n".join(imports), {})  # noqa: S102 - our own text


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_link_leads_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


# Tables


def test_every_page_has_a_topic_and_the_readme_lists_them() -> None:
    assert {page.file for page in PAGES.values()} == {
        str(file.relative_to(PACKAGE)) for file in FILES[1:]
    }
    told = {
        found[1]: (found[2], row[1])
        for row in rows(FILES[0].read_text())
        if (found := re.fullmatch(r"\[(\w+)\]\(discoveryd/(.*\.md)\)", row[0]))
    }
    assert told == {name: tuple(page) for name, page in PAGES.items()}
    assert list(told) == list(PAGES)


def rules_of(tree: ast.AST) -> Iterator[str]:
    """Give the rules that a module's reasons have."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Assign) and "_RULE" in ast.unparse(node.targets[0]):
            values = [node.value]
        if isinstance(node, ast.Call):
            values = [word.value for word in node.keywords if word.arg == "rule"]
            if ast.unparse(node.func).endswith(("fault", "_refuse")):
                values += node.args[:1]
        for value in values:
            sides = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            for side in sides:
                if isinstance(side, ast.Constant) and isinstance(side.value, str):
                    yield side.value


def test_the_standings_page_tells_every_standing_and_every_rule() -> None:
    said = rows(text_of("core/standings.md"))
    first = [name for row in said for name in inline(row[0])]
    known = {rule for m in PACKAGE.rglob("*.py") for rule in rules_of(ast.parse(m.read_text()))}
    assert len(known) > 30
    assert sorted(first) == sorted([*known, *Standing])


def test_the_cards_page_tells_every_member() -> None:
    page = text_of("core/parsing/cards.md")
    told = {name for code in inline(page) for name in re.findall(r"\w+", code)}
    assert not set(schema._MEMBERS) - told
    page = text_of("daemon/life/liveness.md")
    told = {name for code in inline(page) for name in re.findall(r"\w+", code)}
    assert not set(schema._LIVENESS) - told


def fingerprint(**members: object) -> str:
    card = {"display_name": "m", "url": "http://127.0.0.1:8001", **members}
    return cards.parse_card(json.dumps(card).encode(), stem="example").fingerprint


def test_the_cards_page_says_rightly_what_the_fingerprint_covers() -> None:
    marked = [row for row in rows(text_of("core/parsing/cards.md")) if row[-1] in ("yes", "no")]
    assert {row[-1] for row in marked} == {"yes", "no"}
    for first, _, covered in marked:
        for name in inline(first):
            value = 16 if name == "kv_cache_block_size" else {"some": "thing"}
            assert (fingerprint(**{name: value}) != fingerprint()) == (covered == "yes"), name


def test_the_configuration_page_tells_every_key_and_every_flag() -> None:
    page = text_of("daemon/configuration/configuration.md")
    keys = [name for row in rows(page) for name in inline(row[0])]
    assert sorted(keys) == sorted(configuration_file._KEYS)
    flags = {opt for param in daemon_cli.serve.params for opt in param.opts}
    assert {word for code in inline(page) for word in code.split() if word[:2] == "--"} == flags


def test_the_interface_page_tells_every_method() -> None:
    definition = (PACKAGE / "io.discoveryd.Models.varlink").read_text()
    told = [code.partition("(")[0] for r in rows(text_of("interface.md")) for code in inline(r[0])]
    assert sorted(told) == sorted(re.findall(r"^method (\w+)\(", definition, re.MULTILINE))
