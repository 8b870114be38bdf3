"""What cards do, on hosts that can be measured: alone among many, and many at once."""

from collections.abc import Callable
from itertools import count

import msgspec

from discoveryd.core.batch import Found
from discoveryd.core.card import Card
from discoveryd.core.verdict import Standing
from tests.bench.hosts import Host, file_of
from tests.core.cards import adapter, card

SOURCE = "/models/one"


def one_primary(number: int) -> Card:
    """Workers of one model."""
    return card("m", ("a", "b"), source=SOURCE, at=f"ns/c/e/{number}")


def many_primaries(number: int) -> Card:
    """Workers of one source, each with names of its own."""
    aliases = (f"a{number}", f"b{number}")
    return card(f"m{number}", aliases, source=SOURCE, at=f"ns/c/e/{number}")


def bases_and_adapters(number: int) -> Card:
    """Workers of one model, each with an adapter of its own."""
    if number % 2:
        return adapter(f"x{number}", source=SOURCE, at=f"ns/c/e/{number - 1}/x{number}")
    return card("m", source=SOURCE, at=f"ns/c/e/{number}")


KINDS = [one_primary, many_primaries, bases_and_adapters]


class Measured:
    """Turns that leave a host as it was. Each first asserts that it does what it is meant to."""

    def __init__(self) -> None:
        self._fresh = count(1_000_000, 2)

    def admission(self, host: Host) -> int:
        number = next(self._fresh)
        file, newcomer = file_of(number), host.make(number)
        taken = host.cost({file: newcomer})
        assert host.standing(file) is Standing.SERVING
        host.apply({file: None})
        return taken

    def removal(self, host: Host) -> int:
        number = next(self._fresh)
        file = file_of(number)
        host.apply({file: host.make(number)})
        taken = host.cost({file: None})
        assert host.standing(file) is None
        return taken

    def removal_of_an_old_one(self, host: Host) -> int:
        number = host.any_number()
        taken = host.cost({file_of(number): None})
        host.apply({file_of(number): host.make(number)})
        return taken

    def refusal(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: card("z", source="/models/other", at="ns/c/e/z")})
        assert host.standing(file) is Standing.REFUSED
        host.apply({file: None})
        return taken

    def refused_adapter(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: adapter("z", source="/models/other", at="ns/c/e/0/z")})
        assert host.standing(file) is Standing.REFUSED
        host.apply({file: None})
        return taken

    def duplicate(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: host.make(host.any_number())})
        assert host.standing(file) is Standing.DUPLICATE
        host.apply({file: None})
        return taken

    def unjudged_edit(self, host: Host) -> int:
        number = host.any_number()
        edited = msgspec.structs.replace(host.make(number), labels={"zone": "b"})
        taken = host.cost({file_of(number): edited})
        assert host.standing(file_of(number)) is Standing.SERVING
        host.apply({file_of(number): host.make(number)})
        return taken

    def judged_edit(self, host: Host) -> int:
        number = host.any_number() // 2 * 2
        before = host.make(number)
        edited = msgspec.structs.replace(
            before, aliases=(*before.aliases, f"e{number}"), fingerprint=f"edited {number}"
        )
        taken = host.cost({file_of(number): edited})
        assert host.standing(file_of(number)) in (Standing.SERVING, Standing.STANDBY)
        host.apply({file_of(number): before})
        return taken


class PerCard:
    """What happens to `count` cards at once; each returns the nanoseconds for one of them."""

    def registered_when_the_card_that_refused_them_leaves(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({"blocker": card("z", source="/models/other", at="ns/c/e/z")})
        host.apply(_cards(one_primary, count))
        return _cost_each(host, {"blocker": None}, count, Standing.REFUSED, Standing.SERVING)

    def unblocked_when_the_name_gets_free(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({"blocker": card("z", ("a",), source="/models/other", at="ns/c/other/z")})
        host.apply(_cards(one_primary, count))
        return _cost_each(host, {"blocker": None}, count, Standing.BLOCKED, Standing.SERVING)

    def grounded_when_their_base_comes(self, count: int) -> float:
        host = Host(one_primary)
        host.apply(
            {
                file_of(number): adapter(f"x{number}", source=SOURCE, at=f"ns/c/e/0/x{number}")
                for number in range(count)
            }
        )
        base: dict[str, Found] = {"base": one_primary(0)}
        return _cost_each(host, base, count, Standing.ORPHAN, Standing.SERVING)

    def promoted_when_the_incumbent_leaves(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({"incumbent": card("m", source=SOURCE, at="ns/c/e/i")})
        host.apply(_cards(one_primary, count))
        return _cost_each(host, {"incumbent": None}, count, Standing.STANDBY, Standing.SERVING)

    def passed_over_when_the_incumbent_leaves(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({"incumbent": card("m", source=SOURCE, at="ns/c/e/i")})
        host.apply({"heir": card("m", source=SOURCE, at="ns/c/e/h", block=1)})
        host.apply(_cards(_all_different, count))
        return _cost_each(host, {"incumbent": None}, count, Standing.STANDBY, Standing.STANDBY)

    def edited_at_once(self, count: int) -> float:
        host = Host(one_primary)
        host.apply(_cards(one_primary, count))
        edited = _cards(_one_primary_edited, count)
        return _cost_each(host, edited, count, Standing.SERVING, Standing.SERVING)

    def handed_over_with_the_last_edit(self, count: int) -> float:
        host = Host(one_primary)
        host.apply(_cards(one_primary, count))
        edited = _cards(_one_primary_edited, count)
        last = {file_of(0): edited.pop(file_of(0))}
        host.apply(edited)
        return _cost_each(host, last, count, Standing.STANDBY, Standing.SERVING)

    def blocked_in_a_group_of_all_different_cards(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({"blocker": card("z", ("a",), source="/models/other", at="ns/c/other/z")})
        return _cost_each(host, _cards(_all_different, count), count, None, Standing.BLOCKED)

    def gone_after_claiming_one_key(self, count: int) -> float:
        host = Host(one_primary)
        host.apply({file_of(number): one_primary(0) for number in range(count)})
        leaving: dict[str, Found] = {file_of(number): None for number in range(count)}
        return _cost_each(host, leaving, count, Standing.DUPLICATE, None)


def _all_different(number: int) -> Card:
    return card("m", ("a", "b"), source=SOURCE, at=f"ns/c/e/{number}", block=1000 + number)


def _one_primary_edited(number: int) -> Card:
    return card("m", ("a", "b", "c"), source=SOURCE, at=f"ns/c/e/{number}")


def _cards(make: Callable[[int], Card], count: int) -> dict[str, Found]:
    return {file_of(number): make(number) for number in range(count)}


def _cost_each(
    host: Host, move: dict[str, Found], count: int, before: Standing | None, after: Standing | None
) -> float:
    last = file_of(count - 1)
    assert host.standing(last) is before
    taken = host.cost(move)
    assert host.standing(last) is after
    return taken / count
