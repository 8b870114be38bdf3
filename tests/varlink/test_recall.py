"""What is remembered is what would be answered; and nobody can make it grow, or push others out."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from discoveryd.varlink import Recall
from discoveryd.varlink.recall import (
    LARGEST_CALL,
    LARGEST_REFUSAL,
    LARGEST_REPLY,
    MOST_AT_ONCE,
    RELUCTANCE,
    SPELLINGS,
)

TAIL = b",1}\0"
ROOM = 64 * 1024


def knowing(*subjects: str, limit_bytes: int = 1 << 20) -> Recall:
    """Return one that knows each subject by a call that is its name."""
    recall = Recall(TAIL, limit_bytes=limit_bytes)
    for subject in subjects:
        teach(recall, subject)
    return recall


def teach(recall: Recall, subject: str) -> None:
    recall.keep(subject, b"{" + subject.encode())
    recall.learn(subject.encode(), subject)


def test_a_call_in_the_same_bytes_gets_its_subjects_reply() -> None:
    recall = knowing("a", "b")
    assert recall.replies(b"a\0") == b"{a,1}\0"
    assert recall.replies(b"b\0") == b"{b,1}\0"
    assert recall.replies(b"c\0") is None


@pytest.mark.parametrize("received", [b"a", b"aa", b"a\0a", b"\0", b"a\0\0", b"a\0c\0"])
def test_what_is_not_known_whole_is_left_alone(received: bytes) -> None:
    recall = knowing("a")
    assert recall.replies(received) is None
    assert recall.count.calls == 0


def test_several_calls_are_answered_in_their_order_errors_among_them() -> None:
    recall = knowing("a", "b")
    recall.learn_refusal(b"x", b"no\0")
    assert recall.replies(b"b\0a\0b\0") == b"{b,1}\0{a,1}\0{b,1}\0"
    assert recall.replies(b"x\0") == b"no\0"
    assert recall.replies(b"x\0a\0x\0") == b"no\0{a,1}\0no\0"


def test_calls_and_errors_are_counted_as_they_are_answered() -> None:
    recall = knowing("a")
    refused: list[int] = []
    recall.refused = refused.append
    recall.learn_refusal(b"x", b"no\0")
    for received in (b"a\0", b"a\0a\0", b"x\0", b"x\0a\0x\0", b"unknown\0"):
        recall.replies(received)
    assert recall.count.calls == 1 + 2 + 1 + 3
    assert refused == [1, 2]


def test_all_spellings_of_a_call_go_with_their_subject() -> None:
    recall = knowing("a", "b")
    recall.learn(b" a", "a")
    recall.revise(["a"], b",2}\0")
    assert recall.replies(b"a\0") is None
    assert recall.replies(b" a\0") is None
    assert recall.head("a") is None
    assert recall.replies(b"b\0") == b"{b,2}\0"


def test_errors_hold_for_one_revision() -> None:
    recall = knowing()
    recall.learn_refusal(b"x", b"no\0")
    recall.revise([], TAIL)
    assert recall.replies(b"x\0") is None


def test_a_subject_that_is_kept_anew_is_answered_anew() -> None:
    recall = knowing("a")
    recall.keep("a", b"{new")
    assert recall.replies(b"a\0") is None
    recall.learn(b"a", "a")
    assert recall.replies(b"a\0") == b"{new,1}\0"


def test_a_call_of_a_subject_that_is_not_kept_is_not_learnt() -> None:
    recall = knowing()
    recall.learn(b"a", "a")
    assert recall.replies(b"a\0") is None


def test_more_than_a_turn_of_calls_or_a_write_of_replies_is_left_to_who_knows_moderation() -> None:
    recall = knowing("a")
    assert recall.replies(b"a\0" * MOST_AT_ONCE) is not None
    assert recall.replies(b"a\0" * (MOST_AT_ONCE + 1)) is None
    recall.keep("large", bytes(LARGEST_REPLY // 2))
    recall.learn(b"large", "large")
    assert recall.replies(b"large\0") is not None
    assert recall.replies(b"large\0" * 2) is None


def test_long_calls_and_replies_are_not_learnt() -> None:
    recall = knowing("a")
    for call, subject, size in ((bytes([32]) * (LARGEST_CALL + 1), "a", 1), (b"b", "b", ROOM)):
        recall.keep(subject, b"x" * size)
        recall.learn(call, subject)
        assert recall.replies(call + b"\0") is None
    recall.learn_refusal(b"x", b"x" * (LARGEST_REFUSAL + 1))
    assert recall.replies(b"x\0") is None
    assert recall.head("b") is not None


def test_endless_spellings_of_one_name_push_out_only_each_other() -> None:
    recall = knowing("a", "b")
    for spaces in range(1000):
        recall.learn(b" " * (spaces % 500) + b"a", "a")
    assert recall.replies(b"b\0") is not None
    assert sum(recall.replies(b" " * n + b"a\0") is not None for n in range(500)) == SPELLINGS


def test_where_all_is_taken_newcomers_are_let_in_seldom() -> None:
    recall = knowing(*(f"old {number}" for number in range(1000)), limit_bytes=ROOM)
    known = [n for n in range(1000) if recall.replies(b"old %d\0" % n) is not None]
    assert 0 < len(known) * RELUCTANCE < 1000 * RELUCTANCE
    for number in range(RELUCTANCE):
        teach(recall, f"new {number}")
    left = [n for n in known if recall.replies(b"old %d\0" % n) is not None]
    assert len(known) - 4 <= len(left) < len(known)


class Growing(RuleBasedStateMachine):
    """Whatever is asked: it answers what it was taught last, and counts what it holds right."""

    names = st.integers(0, 60).map(str)

    def __init__(self) -> None:
        super().__init__()
        self.recall = Recall(TAIL, limit_bytes=64 * 1024)
        self.heads: dict[str, bytes] = {}
        self.meant: dict[bytes, str] = {}

    @rule(name=names, size=st.integers(1, 3000))
    def keep(self, name: str, size: int) -> None:
        self.heads[name] = name.encode() * size
        self.recall.revise([name], TAIL)
        self.recall.keep(name, self.heads[name])

    @rule(name=names, spaces=st.integers(0, 1100))
    def learn(self, name: str, spaces: int) -> None:
        call = b" " * spaces + name.encode()
        self.meant[call] = name
        self.recall.learn(call, name)

    @rule(name=names, spaces=st.integers(0, 1100), size=st.integers(0, 5000))
    def refuse(self, name: str, spaces: int, size: int) -> None:
        self.recall.learn_refusal(b"-" * spaces + name.encode(), b"x" * size)

    @rule(names=st.lists(names))
    def revise(self, names: list[str]) -> None:
        self.recall.revise(names, TAIL)

    @invariant()
    def answers_what_it_was_taught(self) -> None:
        for call, name in self.meant.items():
            assert self.recall.replies(call + b"\0") in (None, self.heads.get(name, b"") + TAIL)

    @invariant()
    def stays_within_its_bounds(self) -> None:
        recall = self.recall
        known = recall._subjects.values()
        assert recall._size == sum(one.size for one in known) <= recall._limit
        assert set(recall._heads) == {call for one in known for call in one.calls}
        assert recall._refusals_size <= recall._limit // 64


TestGrowing = Growing.TestCase
TestGrowing.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
