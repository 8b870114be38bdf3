"""What is said while something takes time: one line on a terminal, lines elsewhere."""

import contextlib
import io

import pytest

from discoveryd.client.ctl.progress import ProgressLine
from discoveryd.client.ctl.tables import columns

REWRITE = "\r\x1b[K"


class Terminal(io.StringIO):
    """A terminal of a width that nobody knows."""

    def isatty(self) -> bool:
        return True


def shown(*texts: str) -> str:
    """Return what a terminal was sent while these were said, and closed twice."""
    with contextlib.redirect_stderr(Terminal()) as screen:
        line = ProgressLine()
        for text in texts:
            line.say(text)
        line.close()
        line.close()
    return screen.getvalue()


def test_elsewhere_each_thing_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine()
    line.say("one")
    line.say("two\x1b[2J")
    line.close()
    assert capsys.readouterr().err == "one\ntwo\\u001b[2J\n"


def test_on_a_terminal_the_line_is_rewritten_and_empty_at_the_end() -> None:
    told = ["one", "two\\n\\u001b[2J", ""]
    assert shown("one", "two\n\x1b[2J") == "".join(REWRITE + text for text in told)


def test_what_says_nothing_leaves_a_terminal_as_it_is() -> None:
    assert shown() == ""


@pytest.mark.parametrize(
    "text", ["x" * 200, "日" * 100, "x" * 78 + "日本"], ids=["narrow", "wide", "both"]
)
def test_what_is_wider_than_the_terminal_loses_its_end(text: str) -> None:
    (beginning,) = filter(None, shown(text).split(REWRITE))
    assert beginning.endswith("…")
    assert text.startswith(beginning[:-1])
    assert 77 < columns(beginning) < 80


def test_what_fits_is_whole() -> None:
    assert shown("x" * 79) == f"{REWRITE}{'x' * 79}{REWRITE}"
