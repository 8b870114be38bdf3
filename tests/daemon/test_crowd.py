"""How many connections there may be: all, one user's, and streams apart."""

from discoveryd.daemon.socket.crowd import Crowd

ANN, BOB = 1001, 1002


def crowd(limit: int = 4, user_limit: int | None = 2, total_limit: int = 100) -> Crowd:
    return Crowd(limit=limit, user_limit=user_limit, total_limit=total_limit)


def enter(crowd: Crowd, uid: int, count: int) -> None:
    for _ in range(count):
        assert crowd.refusal(uid) is None
        crowd.enter(uid)


def test_all_together_have_a_limit() -> None:
    all_of_them = crowd(user_limit=None)
    enter(all_of_them, ANN, 4)
    assert all_of_them.refusal(BOB) == "all 4 connections are taken"
    all_of_them.leave(ANN, apart=False)
    assert all_of_them.refusal(BOB) is None


def test_one_user_leaves_room_for_the_others() -> None:
    of_two = crowd()
    enter(of_two, ANN, 2)
    assert of_two.refusal(ANN) == f"user {ANN} has all 2 connections that one user may have"
    enter(of_two, BOB, 2)


def test_streams_are_counted_apart() -> None:
    of_two = crowd()
    for _ in range(2):
        enter(of_two, ANN, 1)
        assert of_two.set_apart(ANN)
    enter(of_two, ANN, 2)
    assert of_two.refusal(ANN) is not None
    of_two.leave(ANN, apart=True)
    assert of_two.refusal(ANN) is not None
    of_two.leave(ANN, apart=False)
    assert of_two.refusal(ANN) is None


def test_streams_beyond_their_own_limit_are_counted_with_the_rest() -> None:
    of_one = crowd(limit=2, user_limit=1)
    enter(of_one, ANN, 1)
    assert of_one.set_apart(ANN)
    enter(of_one, ANN, 1)
    assert not of_one.set_apart(ANN)
    assert of_one.refusal(ANN) is not None
    enter(of_one, BOB, 1)
    assert of_one.set_apart(BOB)


def test_a_stream_that_is_over_is_counted_with_the_rest_again() -> None:
    of_one = crowd(user_limit=1)
    enter(of_one, ANN, 1)
    assert of_one.set_apart(ANN)
    of_one.take_back(ANN)
    assert of_one.refusal(ANN) is not None


def test_open_files_limit_both_kinds_together() -> None:
    few = crowd(user_limit=None, total_limit=3)
    enter(few, ANN, 3)
    assert few.set_apart(ANN)
    assert few.refusal(ANN) == "all 3 connections that open files allow are taken"
