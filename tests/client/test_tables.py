"""Tables line up on a terminal, are cut only there, and let no card steer it."""

import pytest

from discoveryd.client.ctl.tables import columns, table


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abc", 3), ("", 0), ("日本", 4), ("é", 1), ("e\u0301", 1), ("a\uff01", 3)],
)
def test_columns_counts_what_a_terminal_shows(text: str, expected: int) -> None:
    assert columns(text) == expected


def test_columns_line_up() -> None:
    assert table(("A", "LONG"), [("wider", "x"), ("y", "z")]) == [
        "A      LONG",
        "wider  x",
        "y      z",
    ]


def test_wide_characters_line_up() -> None:
    assert table(("A", "B"), [("日本", "x"), ("abcd", "y")]) == [
        "A     B",
        "日本  x",
        "abcd  y",
    ]


def test_a_table_without_rows_is_its_heading() -> None:
    assert table(("A", "B"), []) == ["A  B"]


def test_control_and_bidi_characters_are_escaped() -> None:
    (_, line) = table(("A",), [("\x1b[31m\u202eevil\n",)])
    assert line == "\\u001b[31m\\u202eevil\\n"


LONG = "/run/discoveryd/cards/llama-3.1-8b.json"


def test_nothing_is_cut_without_a_limit() -> None:
    assert table(("A", "FILE"), [("x", LONG)], elastic=(1,))[1] == f"x  {LONG}"


def test_elastic_columns_lose_their_beginning_to_fit_the_limit() -> None:
    (_, line) = table(("A", "FILE"), [("x", LONG)], limit=24, elastic=(1,))
    assert line == "x  …s/llama-3.1-8b.json"[:3] + "…" + LONG[-20:]
    assert columns(line) == 24


def test_other_columns_are_never_cut() -> None:
    url = "http://127.0.0.1:8001/a/long/path"
    (_, line) = table(("URL", "FILE"), [(url, LONG)], limit=30, elastic=(1,))
    assert line.startswith(url)


def test_a_cut_never_splits_a_wide_character() -> None:
    (_, line) = table(("FILE",), [("日" * 20,)], limit=14, elastic=(0,))
    assert line == "…" + "日" * 6


def test_what_fits_is_not_cut() -> None:
    (_, line) = table(("A", "FILE"), [("x", "/short")], limit=80, elastic=(1,))
    assert line == "x  /short"
