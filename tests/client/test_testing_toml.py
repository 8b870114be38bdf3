"""What the daemons of tests are told reaches them as it was meant."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discoveryd.client.testing.toml import written

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(table=st.dictionaries(TEXTS, VALUES))
def test_what_is_written_reads_back_as_it_was(table: dict[str, object]) -> None:
    assert tomllib.loads(written(table)) == table


def test_a_path_is_its_text_and_none_is_left_out() -> None:
    table = {"cards": [Path("/srv/cards")], "socket": None, "aliases": {"a": "b", "c": None}}
    assert tomllib.loads(written(table)) == {"cards": ["/srv/cards"], "aliases": {"a": "b"}}


def test_a_tuple_is_a_list() -> None:
    assert tomllib.loads(written({"cards": ("a", "b")})) == {"cards": ["a", "b"]}


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), [None]])
def test_what_has_no_form_is_refused_with_its_key(value: object) -> None:
    with pytest.raises(TypeError, match="quota: "):
        written({"quota": value})
