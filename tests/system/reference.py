"""The README and the pages of the reference: their blocks, tables and command lines.

What is found here is parsed and run by the tests. A command line stands in a block that is marked
as `sh` or `console`, in inline code that begins with a program of ours, or in the README's table of
commands, where the program's name is left out.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "discoveryd"
FILES = [ROOT / "README.md", *sorted(PACKAGE.rglob("*.md"))]
PROGRAMS = ("discoveryctl", "discoveryd")

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS_HEAD = "| command | what it does |\n|---|---|\n"
_EXAMPLES = {
    "--output FILE": "--output written",
    "FILE": "examples/cards/llama-1.json",
    "NAME": "llama",
    "TOPIC": "cards",
    "COMMAND": "true",
    "FORMAT": "nginx",
    "URL": "http://127.0.0.1:8001",
    "N": "1",
}
"""What a reader would put where a page leaves it to him; other capitals are taken as they are."""


class Line(NamedTuple):
    """A command line as it is written, and what is typed in its place; `file` is its text's."""

    file: str
    written: str
    typed: str


class Row(NamedTuple):
    """A row of the README's table of commands: its command lines, and the options that it names."""

    lines: list[Line]
    options: list[str]


def text_of(file: str) -> str:
    return (PACKAGE / file).read_text()


def blocks(text: str, *languages: str) -> list[str]:
    return [block for language, block in _FENCED.findall(text) if language in languages]


def inline(text: str) -> list[str]:
    """Return all inline code, without what is in blocks."""
    return re.findall(r"`([^`]+)`", _FENCED.sub("", text).replace("\n", " "))


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, without their heads."""
    found = re.findall(r"^\|(?!---)(.*)\|$(?!\n\|---)", _FENCED.sub("", text), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in found]


def shell_lines() -> list[Line]:
    """Return every line of the blocks for shells; of a console what somebody types."""
    found: list[Line] = []
    for file in FILES:
        text = file.read_text()
        for block in blocks(text, "sh"):
            joined = block.replace("\\\n", " ")
            found += [_line(file, line) for line in joined.splitlines()]
        for block in blocks(text, "console"):
            found += [_line(file, line) for line in re.findall(r"^[$#] (.*)$", block, re.MULTILINE)]
    return found


def inline_lines() -> list[Line]:
    """Return the inline code that is a command line of ours, as a whole or within `$( )`."""
    return [
        _line(file, code)
        for file in FILES
        for code in inline(file.read_text())
        if any(words[0] in PROGRAMS and len(words) > 1 for words in simple_commands(code))
    ]


def command_rows() -> list[Row]:
    """Return the README's table of commands."""
    readme = FILES[0]
    table = readme.read_text().partition(_COMMANDS_HEAD)[2].partition("\n\n")[0]
    found: list[Row] = []
    for first, rest in rows(table):
        lines: list[Line] = []
        for code in inline(first):
            # "completion bash", "zsh": the second stands in the place of the last word.
            last_but_one = lines[0].written.rsplit(" ", 1)[0] if lines else PROGRAMS[0]
            known = code.split()[0] not in {"zsh", "fish"}
            lines.append(_line(readme, f"{PROGRAMS[0] if known else last_but_one} {code}"))
        found.append(Row(lines, [code.split()[0] for code in inline(rest) if code[:2] == "--"]))
    return found


def _line(file: Path, written: str) -> Line:
    typed = re.sub(r" or [A-Z]+|\.\.\.", "", written)
    typed = re.sub(r"\[((?:--|[A-Z])[^\]]*)\]", r"\1", typed)
    for placeholder, example in _EXAMPLES.items():
        typed = re.sub(rf"(?<![\w.]){placeholder}(?![\w.])", example, typed)
    return Line(file.name, written, typed)


def simple_commands(line: str) -> Iterator[list[str]]:
    """Split a line of a shell into its commands, as words; redirections are left out."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:  # inline code that is no line of a shell
        return
    skip = False
    for word in [*found, ";"]:
        if skip:
            skip = False
        elif word in {";", "&&", "||", "|"}:
            if words:
                yield words
            words = []
        elif word == ">":
            skip = True
        else:
            words.append(word)
            for inner in re.findall(r"\$\(([^)]*)\)", word):
                yield from simple_commands(inner)
