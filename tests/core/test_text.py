"""How file names and strings are shown."""

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discoveryd.core.text import display_path, has_control, path_bytes, printable, quoted


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"a.json", "a.json"),
        ("caf\u00e9 \u6a21\u578b.json".encode(), "caf\u00e9 \u6a21\u578b.json"),
        (b"a\xff\xfeb.json", r"a\xff\xfeb.json"),
        (rb"a\xff.json", r"a\\xff.json"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"a\nb", "a\nb"),
    ],
)
def test_a_path_is_shown_as_utf8_with_bytes_and_backslashes_escaped(
    path: bytes, shown: str
) -> None:
    assert display_path(path) == shown


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_two_paths_never_look_alike(one: bytes, other: bytes) -> None:
    assert (display_path(one) == display_path(other)) is (one == other)


@given(st.binary())
def test_a_shown_path_leads_back_to_its_bytes(path: bytes) -> None:
    assert path_bytes(display_path(path)) == path


@given(st.binary())
def test_a_shown_path_is_valid_unicode(path: bytes) -> None:
    assert display_path(path).encode().decode() == display_path(path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u6a21\u578b \U0001f600", "plain \u6a21\u578b \U0001f600"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31m\x00\x7f\x9b", r"\u001b[31m\u0000\u007f\u009b"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u2028\u2029\ufeff", r"\u2028\u2029\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        (os.fsdecode(b"\xff"), r"\udcff"),
        ("back\\slash \u00a0", "back\\slash \u00a0"),
    ],
)
def test_what_could_fool_a_terminal_is_escaped_and_all_else_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_printable_text_is_one_line_without_controls(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(shown) == shown


def test_quoted_text_is_cut_where_it_is_long() -> None:
    assert quoted("a\nb") == r'"a\nb"'
    assert quoted("x" * 10_000) == '"' + "x" * 120 + '..."'


@given(st.text())
def test_controls_are_exactly_category_cc(text: str) -> None:
    assert has_control(text) is any(unicodedata.category(char) == "Cc" for char in text)
