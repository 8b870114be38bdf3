"""Names of card files, and changes of one member that change nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discoveryd.client.workers.cardtext import (
    MARK,
    encoded,
    file_name,
    marked,
    with_accepting,
    written,
)
from discoveryd.client.workers.publishing import check_name

TEXTS = st.text(min_size=1, max_size=300)


@pytest.mark.parametrize(
    ("card", "file"),
    [
        (
            {
                "display_name": "meta-llama/Llama-3.1-8B-Instruct",
                "url": "http://127.0.0.1:8001",
            },
            "meta-llama_Llama-3.1-8B-Instruct@127.0.0.1_8001.json",
        ),
        ({"display_name": "llama", "url": "https://gpu-1:443/"}, "llama@gpu-1_443.json"),
        ({"display_name": "llama"}, "llama@4711.json"),
        (
            {"card_json": {"display_name": "llama"}, "display_name": "no", "url": "http://h:1"},
            "llama@h_1.json",
        ),
        ({"display_name": "通义/千问", "url": "http://h:1"}, "通义_千问@h_1.json"),
    ],
)
def test_a_card_file_is_called_by_model_and_place(card: dict[str, object], file: str) -> None:
    assert file_name(card, "4711") == file


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/b", "a_b"),
        ("a b", "a/b"),
        ("a b", "a?b"),
        (".a", "a"),
        ("", "card"),
        ("x" * 300, "x" * 301),
        ("\ud800", "_"),
    ],
)
def test_names_that_look_alike_as_files_are_told_apart(one: str, other: str) -> None:
    names = {file_name({"display_name": name}, "1") for name in (one, other)}
    assert len(names) == 2


def test_places_that_look_alike_as_files_are_told_apart() -> None:
    urls = ["http://h:1", "http://h/1", "unix:///h/1", "unix:///h_1", "http://[::1]:1"]
    assert len({file_name({"display_name": "a", "url": url}, "1") for url in urls}) == len(urls)


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_two_workers_never_meet_in_one_file(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = []
    for name, place in (one, other):
        file = file_name({"display_name": name, "url": f"http://{place}"}, "1")
        check_name(file)
        assert len(file.encode()) <= 200
        assert file.isprintable()
        names.append(file)
    same = (one[0], one[1].rstrip("/")) == (other[0], other[1].rstrip("/"))
    assert (names[0] == names[1]) == same


@pytest.mark.parametrize("card", [{}, {"display_name": 7}, {"display_name": "a", "url": 7}])
def test_a_card_that_is_none_has_a_file_too(card: dict[str, object]) -> None:
    check_name(file_name(card, "1"))


def test_a_card_that_says_nothing_of_its_life_is_held() -> None:
    assert marked({"display_name": "a"}, "m")["liveness"] == {"held": True}
    assert marked({"display_name": "a", "liveness": None}, "m")["liveness"] == {"held": True}
    own = {"lease_seconds": 10}
    assert marked({"display_name": "a", "liveness": own}, "m")["liveness"] == own


def test_a_mark_is_recognised() -> None:
    said = written(encoded(marked({"display_name": "a"}, "m1")))
    assert (said.mark, said.accepting, said.lives) == ("m1", True, True)


@pytest.mark.parametrize(
    ("content", "lives"),
    [
        (b'{"liveness": {"pid": 7}}', True),
        (b'{"liveness": {"lease_seconds": 7}}', True),
        (b'{"liveness": {"held": false}}', False),
        (b'{"liveness": {}}', False),
        (b'{"liveness": 7}', False),
        (b"{}", False),
        (b"torn", False),
        (b"[]", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_whether_a_card_depends_on_a_life_is_read_from_any_content(
    content: bytes, lives: bool
) -> None:
    assert written(content).lives == lives
    assert written(content).mark is None


def test_draining_changes_one_member_and_no_byte_of_the_others() -> None:
    others = (
        rb'"n": 123456789012345678901234567890, "f": 1.10, "e": 1e999, "s": "\u00e9\/", '
        rb'"o": {"x": 1, "x":  2}'
    )
    drained = with_accepting(b"{" + others + b"}", accepting=False)
    assert drained.endswith(b',"accepting":false}')
    for member in others.split(b', "'):
        value = member.split(b": ", 1)[1]
        assert value in drained
    assert with_accepting(drained, accepting=False) is drained
    assert b'"accepting":true' in with_accepting(drained, accepting=True)


def test_what_says_so_already_is_not_changed() -> None:
    for content in (b'{"a":  1}', b'{"accepting": null}', b'{"accepting": true}'):
        assert with_accepting(content, accepting=True) is content


def test_of_duplicate_members_the_last_is_kept() -> None:
    drained = with_accepting(b'{"a": 1, "accepting": false, "a": 2, "accepting": true}', False)
    assert json.loads(drained) == {"a": 2, "accepting": False}


def test_an_envelope_drains_beside_its_card() -> None:
    drained = with_accepting(b'{"card_json": {"accepting": true}}', accepting=False)
    assert json.loads(drained) == {"card_json": {"accepting": True}, "accepting": False}


@pytest.mark.parametrize("content", [b"", b"torn", b"[1]", b"\xff\xfe", b'{"a": 1'])
def test_what_is_no_card_cannot_be_drained(content: bytes) -> None:
    with pytest.raises(ValueError, match="is not one JSON object"):
        with_accepting(content, accepting=False)


def test_the_card_says_whether_it_accepts_where_it_does() -> None:
    assert marked({}, "m", accepting=False)["accepting"] is False
    assert marked({"accepting": True}, "m", accepting=False)["accepting"] is True
    assert MARK in marked({}, "m")
