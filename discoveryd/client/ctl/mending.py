"""What to do about a card that does not serve: for each rule, in words, and the command to copy.

The reasons themselves say what is wrong; here stands what the one who runs the worker does next.
There is an entry for every rule that the daemon can name, and a test holds that; of a newer
daemon's rule nothing is said. Values in, values out. Words are printable; commands are as a shell
takes them, whatever a card's file or name holds.
"""

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from discoveryd.core.text import printable, quoted, shortened
from discoveryd.interface import Reason, Verdict

_LONGEST = 120
"""Characters of a member's value that are repeated."""


class Mend(NamedTuple):
    """One way out: what to do, as words that lead to the commands for it, if there are any."""

    words: str
    commands: tuple[str, ...] = ()


class _Case(NamedTuple):
    """A reason of a verdict; `verify` is the command that judges the card again."""

    verdict: Verdict
    reason: Reason
    verify: str

    @property
    def file(self) -> str:
        return in_shell(self.verdict.file)

    def of_rivals(self, command: str) -> tuple[str, ...]:
        """Return the command for each card that this one conflicts with."""
        return tuple(f"{command} {in_shell(file)}" for file in self.reason.against)

    @property
    def model(self) -> str:
        return in_shell(self.verdict.model or (self.verdict.names or ("NAME",))[0])


def mends(verdict: Verdict, *, supposed: bool = False) -> list[Mend]:
    """Return the ways out of a standing, none twice.

    Where the verdict is only `supposed`, the card is not dropped yet: it is checked, not synced.
    """
    verify = f"discoveryctl {'check' if supposed else 'sync'} {in_shell(verdict.file)}"
    found: dict[Mend, None] = {}
    for reason in verdict.reasons:
        way_out = _WAYS_OUT.get(reason.rule)
        if way_out is not None:
            found.update(dict.fromkeys(way_out(_Case(verdict, reason, verify))))
    return list(found)


def in_shell(text: str) -> str:
    r"""Return a file or name, as the daemon shows it, as one word of a shell's command.

    What has bytes that are not UTF-8 (`\xff`), backslashes (`\\`) or unprintable characters is
    written in the form $'...' of bash and zsh, which reads these escapes as the daemon writes them.
    """
    if text.isprintable() and "\\" not in text:
        return shlex.quote(text)
    return "$'" + printable(text).replace("'", "\\'") + "'"


def _correct(case: _Case) -> Iterator[Mend]:
    yield Mend("correct the card in its file, then", (case.verify,))


def _link(case: _Case) -> Iterator[Mend]:
    if case.reason.found == "a symbolic link":
        copy = f'cp --remove-destination -- "$(readlink -f -- {case.file})" {case.file}'
        yield Mend("put the file itself in the link's place", (copy,))
    else:
        yield Mend("remove the link, or restore what it leads to", (f"rm -- {case.file}",))


def _move(case: _Case) -> Iterator[Mend]:
    yield Mend("move it out of the directory", (f"mv -- {case.file} ~/",))


def _unreadable(case: _Case) -> Iterator[Mend]:
    yield Mend("let the daemon read it, as its owner", (f"chmod 0644 -- {case.file}", case.verify))


def _not_allowed(case: _Case) -> Iterator[Mend]:
    del case
    yield Mend(
        "let the operator allow it in the configuration, then",
        ("sudo discoveryctl reload",),
    )


def _quota(case: _Case) -> Iterator[Mend]:
    folder = in_shell(case.verdict.file.rpartition("/")[0] or ".")
    whose = case.verdict.owner_uid
    owner = "" if whose is None else f" -user {whose}"
    yield Mend(
        "find those that are not needed any more, and withdraw them",
        (f"find {folder} -name '*.json'{owner}", "discoveryctl withdraw FILE"),
    )


def _renew(case: _Case) -> Iterator[Mend]:
    yield Mend(
        "if the worker lives, let it renew its card in time, like this", (f"touch -- {case.file}",)
    )
    yield _withdraw(case, "if it does not")


def _start_again(case: _Case) -> Iterator[Mend]:
    yield Mend("start the worker again, and let it write its card anew")
    yield _withdraw(case, "if it is not to come back")


def _hold(case: _Case) -> Iterator[Mend]:
    yield Mend(
        "take the card out of the directory, and start the worker in a way that publishes it",
        (f"mv {case.file} card.json", "discoveryctl run --card card.json -- COMMAND"),
    )
    yield _withdraw(case, "if it is not to come back")


def _duplicate(case: _Case) -> Iterator[Mend]:
    names = ", ".join(quoted(name) for name in case.verdict.names) or "its names"
    yield _withdraw(case, f"if both speak of one server, list {names} under aliases there, then")
    yield Mend("if they speak of two, give this card a url of its own, then", (case.verify,))


def _another_source(case: _Case) -> Iterator[Mend]:
    yield Mend(
        "for the same weights write one source_path in both cards, for others give this one a "
        "component of its own, then",
        (case.verify,),
    )


def _another_name(case: _Case) -> Iterator[Mend]:
    name = "the name" if case.reason.found is None else quoted(case.reason.found)
    yield Mend(f"take {name} out of this card, or give it another name, then", (case.verify,))


def _half_adapter(case: _Case) -> Iterator[Mend]:
    yield Mend(
        "give an adapter both lora and a suffix, and a base neither, then",
        (case.verify,),
    )


def _await_worker(case: _Case) -> Iterator[Mend]:
    yield Mend("its worker is still starting: wait for it", (f"discoveryctl wait {case.model}",))


def _find_base(case: _Case) -> Iterator[Mend]:
    if case.reason.against:
        yield Mend("see why the base does not serve", case.of_rivals("discoveryctl explain"))
    else:
        yield Mend(
            "publish the base's card, with this one's url and source_path, and without lora",
            ("discoveryctl publish FILE",),
        )
    yield Mend("correct this card's url and source_path, then", (case.verify,))


def _take_over(case: _Case) -> Iterator[Mend]:
    field, value = case.reason.field, case.reason.expected
    if field is not None and value is not None:
        theirs = f"{printable(field)}, {printable(shortened(value, _LONGEST))}"
        yield Mend(f"to serve beside them, give this card their {theirs}, then", (case.verify,))
    yield Mend(
        "to serve instead of them, let them finish, and withdraw them",
        (f"discoveryctl drain {case.model}", *case.of_rivals("discoveryctl withdraw")),
    )


def _operators_name(case: _Case) -> Iterator[Mend]:
    yield from _another_name(case)
    yield Mend(
        "let the operator take it out of [aliases], then",
        ("sudo discoveryctl reload",),
    )


def _other_owner(case: _Case) -> Iterator[Mend]:
    yield Mend("give it a name of its own, then", (case.verify,))
    if case.reason.expected is not None:
        owner = in_shell(case.reason.expected)
        yield Mend("give the card to that user", (f"sudo chown -- {owner} {case.file}",))


def _withdraw(case: _Case, when: str) -> Mend:
    return Mend(when, (f"discoveryctl withdraw {case.file}",))


_WAYS_OUT: dict[str, Callable[[_Case], Iterator[Mend]]] = {
    **dict.fromkeys(
        (
            *("not_json", "not_object", "too_large", "too_deep", "missing", "wrong_type"),
            *("bad_name", "bad_key", "bad_url", "out_of_range", "not_a_model", "more_faults"),
        ),
        _correct,
    ),
    "symbolic_link": _link,
    "not_a_file": _move,
    "file_name": _move,
    "unreadable": _unreadable,
    "not_allowed": _not_allowed,
    "quota": _quota,
    "lease_expired": _renew,
    "process_gone": _start_again,
    "not_held": _hold,
    "duplicate_key": _duplicate,
    "no_source": _another_source,
    "different_source": _another_source,
    "different_base": _another_source,
    "name_taken": _another_name,
    "adapter_name_taken": _another_name,
    "name_claimed": _another_name,
    "half_adapter": _half_adapter,
    "no_instance": _await_worker,
    "no_base": _find_base,
    "other_fingerprint": _take_over,
    "operator_claim": _operators_name,
    "other_owner": _other_owner,
}
