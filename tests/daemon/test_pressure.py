"""What all peers together may send: who is held back, for how long, and who has to go."""

from discoveryd.daemon.socket.pressure import Intake


class Sender:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self.read = True

    def hold_back(self) -> None:
        assert self.read
        self.read = False

    def let_on(self) -> None:
        assert not self.read
        self.read = True


def crowd(intake: Intake, *held: int) -> list[Sender]:
    senders = [Sender() for _ in held]
    for sender, amount in zip(senders, held, strict=True):
        intake.note(sender, amount, 0.0)
    return senders


def reading(senders: list[Sender]) -> list[bool]:
    return [sender.read for sender in senders]


def test_up_to_the_limit_everybody_is_read() -> None:
    intake = Intake(limit=100, share=10)
    assert all(reading(crowd(intake, 60, 40)))
    assert not intake.squeezed


def test_over_the_limit_each_arrival_holds_back_the_largest_that_is_still_read() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 50, 30, 20, 15)
    intake.note(senders[3], 16, 0.0)
    assert reading(senders) == [True, False, True, True]
    intake.note(senders[3], 17, 0.0)
    assert reading(senders) == [True, False, False, True]
    intake.note(senders[3], 18, 0.0)
    assert reading(senders) == [True, False, False, False]


def test_over_the_limit_reads_are_small_until_there_is_room_again() -> None:
    told: list[bool] = []
    intake = Intake(limit=100, share=10, squeeze=told.append)
    (sender,) = crowd(intake, 101)
    intake.note(sender, 90, 0.0)
    assert told == [True]
    intake.note(sender, 70, 0.0)
    assert told == [True, False]


def test_who_holds_a_fair_share_is_never_held_back() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 101, 50, *[10] * 20)
    intake.note(senders[20], 9, 0.0)
    assert reading(senders) == [True, False, *[True] * 20]


def test_one_of_those_held_back_goes_on_until_something_of_it_is_answered() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 50, 51, 52)
    assert reading(senders) == [True, True, False]
    favoured = senders[1]
    intake.note(favoured, 60, 0.0)
    intake.note(favoured, 70, 0.0)
    assert reading(senders) == [False, True, False]
    intake.note(favoured, 20, 0.0)
    assert reading(senders) == [True, False, False]


def test_all_are_read_again_once_enough_is_answered_and_not_before() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 101, 40, 41, 42, 43)
    assert reading(senders) == [True, False, False, False, False]
    for answered, total, held_back in ((0, 166, [1, 2, 3]), (4, 123, [1, 2]), (3, 81, [1])):
        intake.note(senders[answered], 0, 0.0)
        assert intake.total == total
        assert [number for number in range(5) if not senders[number].read] == held_back
    intake.note(senders[2], 35, 0.0)
    assert intake.total == 75
    assert all(reading(senders))


def test_a_connection_that_is_gone_makes_room() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 60, 50, 20)
    for _ in range(2):
        intake.forget(senders[0], 0.0)
        assert intake.total == 70
    assert all(reading(senders[1:]))


def test_favour_is_passed_on_if_nothing_is_done_with_it_to_the_last_held_back() -> None:
    intake = Intake(limit=200, share=10)
    senders = crowd(intake, 50, 51, 52, 53)
    for number, held in enumerate((54, 53, 52)):
        intake.note(senders[number], held, 0.0)
    assert reading(senders) == [False, False, False, True]
    assert intake.overdue(0.05, 9.0) == []
    assert reading(senders) == [False, False, False, True]
    for tenth, favoured in ((2, 2), (4, 1), (6, 0), (8, 3)):
        assert intake.overdue(tenth / 10, 9.0) == []
        assert reading(senders) == [number == favoured for number in range(4)]


def test_favour_is_passed_on_if_too_little_is_done_with_it() -> None:
    intake = Intake(limit=140, share=10)
    senders = crowd(intake, 50, 51, 52)
    intake.note(senders[1], 52, 0.0)
    for step in range(12):
        intake.note(senders[2], 52, step * 0.09)
    assert reading(senders) == [False, False, True]
    intake.note(senders[2], 53, 1.01)
    assert reading(senders) == [True, False, False]


def test_where_there_is_no_slack_for_another_favour_who_does_nothing_with_his_has_to_go() -> None:
    intake = Intake(limit=100, share=10)
    senders = crowd(intake, 50, 51, 52)
    assert intake.overdue(0.05, 9.0) == []
    assert intake.overdue(0.2, 9.0) == [senders[1]]
    intake.forget(senders[1], 0.2)
    assert intake.overdue(0.25, 9.0) == []


def test_who_is_held_back_for_too_long_has_to_go_the_longest_first_and_no_more_than_needed() -> (
    None
):
    intake = Intake(limit=240, share=10)
    senders = crowd(intake, 51, 52, 53, 54, 55)
    for when, number in ((1.0, 3), (2.0, 2), (3.0, 1)):
        intake.note(senders[number], 51 + number, when)
    assert intake.overdue(4.9, 5.0) == []
    assert intake.overdue(5.0, 5.0) == [senders[4]]
    assert intake.overdue(7.0, 5.0) == [senders[4], senders[3]]
    assert intake.overdue(99.0, 5.0) == [senders[4], senders[3]]


def test_everybody_gets_through_whatever_the_order_of_arrivals() -> None:
    """Peers that send large calls in pieces, all at once, and go on whenever they are read."""
    intake = Intake(limit=100, share=2)
    senders = [Sender() for _ in range(20)]
    sent = dict.fromkeys(senders, 0)
    done: list[Sender] = []
    for now in range(10_000):
        for sender in senders:
            if sender.read and sender not in done:
                sent[sender] += 1
                if sent[sender] == 60:
                    done.append(sender)
                intake.note(sender, 0 if sender in done else sent[sender], float(now))
        if len(done) == len(senders):
            break
    assert len(done) == len(senders)
    assert intake.total == 0
