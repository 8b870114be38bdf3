"""The index from a thing to its keys."""

from discoveryd.core.keyindex import KeyIndex


def index(**members: str) -> KeyIndex[str, str]:
    """Build one: `index(a="12")` has the members 1 and 2 under a."""
    built: KeyIndex[str, str] = KeyIndex()
    for name, letters in members.items():
        for letter in letters:
            built.add(name, letter)
    return built


def test_a_name_without_members_is_not_there() -> None:
    built = index(a="1", b="12")
    built.discard("a", "1")
    built.discard("b", "1")
    assert "a" not in built
    assert "b" in built
    assert len(built) == 1


def test_a_sample_besides_a_name_is_of_another() -> None:
    assert index(a="1", b="2").sample_besides("a") == "2"
    assert index(a="12", b="3").sample_besides("b") in ("1", "2")
    assert index(a="12", b="34").sample_besides("a") in ("3", "4")


def test_there_is_no_sample_where_there_is_no_other_name() -> None:
    assert index().sample_besides() is None
    assert index(a="12", b="3").sample_besides("a", "b") is None


def test_sampling_takes_nothing_away() -> None:
    built = index(a="12", b="3", c="45", d="6")
    assert built.sample_besides("a", "b", "c") == "6"
    assert {name: set(built.members(name)) for name in "abcd"} == {
        "a": {"1", "2"},
        "b": {"3"},
        "c": {"4", "5"},
        "d": {"6"},
    }


def test_members_are_all_or_at_most_so_many() -> None:
    built = index(a="123", b="4")
    assert set(built.members("a")) == {"1", "2", "3"}
    assert len(built.members("a", 2)) == 2
    assert built.members("b", 2) == ("4",)
    assert built.members("c", 2) == ()
