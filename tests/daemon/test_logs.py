"""What people read: one line a record, harmless whatever is in it, and a greeting."""

import io
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from discoveryd.daemon import logs

Lines = Callable[[], list[str]]
WHEN = re.compile(r"(?<=^.{8})\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
_log = logging.getLogger("discoveryd.anything")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Keep pytest's own handlers safe from the set-up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def lines(root: logging.Logger) -> Lines:
    stream = io.StringIO()
    logs.set_up("info", stream=stream, environ={})
    assert root.handlers
    return lambda: [WHEN.sub("", line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def journal(root: logging.Logger, tmp_path: Path) -> Iterator[Lines]:
    """Give the lines of a file that is said to be the journal."""
    with (tmp_path / "journal").open("w+") as stream:
        logs.set_up("debug", stream=stream, environ={"JOURNAL_STREAM": name_of(stream)})
        assert root.handlers
        yield lambda: Path(stream.name).read_text().splitlines()


def name_of(stream: TextIO) -> str:
    file = os.fstat(stream.fileno())
    return f"{file.st_dev}:{file.st_ino}"


def test_a_record_is_its_level_and_its_message(lines: Lines) -> None:
    _log.info("serving %d cards", 3)
    _log.warning("look")
    assert lines() == ["INFO    serving 3 cards", "WARNING look"]


def test_the_journal_is_told_the_priority_of_each_record(journal: Lines) -> None:
    for level in (10, 20, 30, 40, 50):
        _log.log(level, "a\nb")
    assert journal() == [f"<{priority}>a\\nb" for priority in (7, 6, 4, 3, 2)]


def test_the_journal_is_told_the_priority_of_each_line_of_a_traceback(journal: Lines) -> None:
    try:
        int("a\n<0>forged")
    except ValueError:
        _log.exception("a bug")
    first, *traceback = journal()
    assert first == "<3>a bug"
    assert traceback[0].startswith("<3>Traceback")
    assert len(traceback) > 2
    assert all(line.startswith("<3>") for line in traceback)


@pytest.mark.parametrize("told", ["8:1", "", "nonsense"])
def test_a_journal_that_reads_another_file_is_told_nothing(
    root: logging.Logger, tmp_path: Path, told: str
) -> None:
    with (tmp_path / "log").open("w+") as stream:
        logs.set_up("info", stream=stream, environ={"JOURNAL_STREAM": told})
        assert root.handlers
        _log.info("now")
        text = Path(stream.name).read_text()
    assert text.startswith("INFO ")
    assert WHEN.search(text)


def test_what_nobody_caught_is_a_record_too(journal: Lines) -> None:
    try:
        int("a")
    except ValueError as error:
        logs.crashed(type(error), error, error.__traceback__)
    lines = journal()
    assert lines[-1] == "<2>ValueError: invalid literal for int() with base 10: 'a'"
    assert all(line.startswith("<2>") for line in lines)


def test_a_complaint_is_one_line_with_its_priority_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w+") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        logs.complain("cannot\nserve")
        monkeypatch.setenv("JOURNAL_STREAM", name_of(stream))
        logs.complain("cannot\nserve")
        text = Path(stream.name).read_text()
    assert text == "discoveryd: cannot\\nserve\n<3>cannot\\nserve\n"


def test_records_below_the_level_are_not_written(lines: Lines) -> None:
    _log.debug("details")
    assert lines() == []


def test_the_time_is_given_where_no_journal_adds_it(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("debug", stream=stream, environ={})
    assert root.level == logging.DEBUG
    _log.info("now")
    level, date, time, message = stream.getvalue().split()
    assert (level, message) == ("INFO", "now")
    assert (date.count("-"), time.count(":")) == (2, 2)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nERROR forged", "a\\nERROR forged"),
        ("\x1b[2J", "\\u001b[2J"),
        ("\u202etxt", "\\u202etxt"),
        ("\udcff", "\\udcff"),
        ("模型", "模型"),
    ],
)
def test_what_could_fool_a_terminal_is_escaped(lines: Lines, name: str, shown: str) -> None:
    _log.info("refused %s", name)
    assert lines() == [f"INFO    refused {shown}"]


def test_a_traceback_keeps_its_lines_and_escapes_them(lines: Lines) -> None:
    try:
        int("a\x1b[2J")
    except ValueError:
        _log.exception("a bug")
    first, *traceback = lines()
    assert first == "ERROR   a bug"
    assert traceback[0].startswith("Traceback")
    assert len(traceback) > 2
    assert "\x1b" not in "".join(traceback)


def test_the_greeting_says_where_to_drop_where_it_listens_and_what_to_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    text = logs.greeting(
        cards=["/srv/a", "/srv/b"],
        dynamo=["/srv/store"],
        socket="/run/s",
        default_socket=True,
        name="org/my model",
    )
    for expected in ("/srv/a", "/srv/b", "/srv/store", "/run/s", "Ctrl-C"):
        assert expected in text
    assert "  discoveryctl list\n" in text
    assert "  discoveryctl resolve 'org/my model'\n" in text
    assert "  discoveryctl explain\n" in text


def test_the_greeting_names_a_socket_that_clients_would_not_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    text = logs.greeting(cards=["/c"], dynamo=[], socket="/my run/s", default_socket=False)
    assert "  discoveryctl --socket '/my run/s' resolve NAME\n" in text


def test_the_greeting_says_what_to_type_where_the_environment_is_not_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "bin" / "discoveryctl"
    installed.parent.mkdir()
    installed.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(installed.with_name("python")))
    monkeypatch.setenv("PATH", "/nowhere")
    text = logs.greeting(cards=["/c"], dynamo=[], socket="/s", default_socket=True)
    assert f"  {shlex.quote(str(installed))} list\n" in text
    monkeypatch.setenv("PATH", str(installed.parent))
    text = logs.greeting(cards=["/c"], dynamo=[], socket="/s", default_socket=True)
    assert "  discoveryctl list\n" in text
