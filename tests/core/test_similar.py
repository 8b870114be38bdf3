"""Names that may have been meant."""

import pytest

from discoveryd.core.similar import SimilarNames


def known(*names: str) -> SimilarNames:
    similar = SimilarNames()
    for name in names:
        similar.add(name)
    return similar


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("llama-3.1", "Llama_3.1"),
        ("llama31", "Llama 3.1"),
        ("ｌｌａｍａ", "llama"),  # noqa: RUF001  # wide letters are the point
        ("llama", "meta/Llama"),
        ("meta/llama", "LLAMA"),
        ("org/llama", "meta/llama"),
    ],
)
def test_a_name_is_found_by_what_people_get_wrong_in_it(asked: str, meant: str) -> None:
    assert known(meant, "other").to(asked) == [meant]


def test_the_name_itself_is_not_meant() -> None:
    assert known("llama", "Llama").to("llama") == ["Llama"]


def test_whole_matches_come_before_those_of_the_last_segment() -> None:
    assert known("a/llama", "LLAMA").to("a/lla-ma") == ["a/llama", "LLAMA"]


def test_at_most_five_are_told() -> None:
    assert len(known(*(f"org{number}/llama" for number in range(9))).to("llama")) == 5


def test_a_name_that_is_served_no_more_is_forgotten() -> None:
    similar = known("meta/llama", "LLAMA")
    similar.discard("meta/llama")
    similar.discard("LLAMA")
    assert similar.to("llama") == []
