"""The differential test of verdicts: a case, the real runtime, discoveryd, and what to make of it.

Every registration of a case is an outcome: both agree; or they differ and a documented deviation
says so, which is then played (holding.py); or they differ, and that is a bug of somebody's. What
Dynamo could not play, because an argument or a name was none for it, is left out for both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from discoveryd.core.card import Card
from tests.bench.oracle import deviations, holding, ours
from tests.bench.oracle.cases import Case, Registers, Step, case, simpler
from tests.bench.oracle.runtime import Played, Runtime

Judge = Callable[[Sequence[Step], Sequence[int]], list[str | None]]

_READ = ("key", "display_name", "source_path", "aliases", "adapter", "half_adapter")
_LONGEST = 400


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one registration, in the words of both, with those cards before it."""

    kind: Literal["agrees", "deviates", "differs"]
    steps: tuple[Step, ...]
    theirs: str
    ours: str | None
    deviations: tuple[str, ...] = ()


class Report(msgspec.Struct):
    """What became of many cases."""

    cases: int = 0
    agreed: Counter[str] = msgspec.field(default_factory=Counter)
    deviated: Counter[str] = msgspec.field(default_factory=Counter)
    unplayed: Counter[str] = msgspec.field(default_factory=Counter)
    differing: list[tuple[Case, Outcome]] = msgspec.field(default_factory=list)


def compare(runtime: Runtime, one: Case, judge: Judge = ours.judged) -> list[Outcome]:
    """Play a case on both sides; return an outcome for each registration that could be played."""
    played = runtime.play(one.steps)
    steps, theirs = playable(one.steps, played)
    verdicts = judge(steps, played.instances)
    outcomes: list[Outcome] = []
    for place, (step, said) in enumerate(zip(steps, theirs, strict=True)):
        if said is None:
            continue
        if said == verdicts[place]:
            other = _other_card(steps, place, said, played)
            outcomes.append(
                Outcome(
                    kind="differs" if other else "agrees",
                    steps=tuple(steps[: place + 1]),
                    theirs=other or said,
                    ours=verdicts[place],
                )
            )
            continue
        names = _documented(runtime, steps[:place], step, verdicts[place])
        outcomes.append(
            Outcome(
                kind="differs" if names is None else "deviates",
                steps=tuple(steps[: place + 1]),
                theirs=said,
                ours=verdicts[place],
                deviations=names or (),
            )
        )
    return outcomes


def playable(steps: Sequence[Step], played: Played) -> tuple[list[Step], list[str | None]]:
    """Return the steps that came to something, and what the real runtime said of each."""
    words = [None if verdict is None else verdict.said for verdict in played.verdicts]
    kept = [
        (step, said)
        for step, said in zip(steps, words, strict=True)
        if said is None or not said.startswith("failed")
    ]
    return [step for step, _ in kept], [said for _, said in kept]


def _other_card(steps: Sequence[Step], place: int, said: str, played: Played) -> str | None:
    """Return how the card that Dynamo wrote differs from the one that was judged, if it does."""
    step = steps[place]
    if said != "accept" or any(each.file == step.file for each in steps if each is not step):
        return None
    name = ours.file_name(step, played.instances)
    text = played.written.get(name.decode())
    if text is None:
        return f"accept, and wrote no {name.decode()}"
    mine = ours.read(step, played.instances)
    theirs = ours.found(name, text.encode("utf-8", "surrogateescape"))
    if mine is None or not isinstance(theirs, Card):
        return None if mine is theirs else f"accept, and wrote {text[:_LONGEST]}"
    different = [field for field in _READ if getattr(mine, field) != getattr(theirs, field)]
    return f"accept, and wrote another {', '.join(different)}" if different else None


def _documented(
    runtime: Runtime, before: Sequence[Step], newcomer: Step, verdict: str | None
) -> tuple[str, ...] | None:
    """Return the deviations that make the verdict what it is; None where they do not."""
    if (name := deviations.invalid(newcomer)) is not None:
        return (name,) if verdict == "invalid" else None
    if holding.duplicate(before, newcomer, runtime.instances):
        return (deviations.DUPLICATE,) if verdict == "duplicate" else None
    held = holding.held(before, newcomer, runtime.instances)
    said = runtime.play((*held.steps, newcomer)).verdicts[-1]
    if not held.deviations or said is None or said.said != verdict:
        return None
    return tuple(sorted(held.deviations))


def run(runtime: Runtime, seed: str, numbers: Iterable[int], judge: Judge = ours.judged) -> Report:
    """Compare the cases of these numbers."""
    report = Report()
    for number in numbers:
        one = case(seed, number)
        report.cases += 1
        played = 0
        for outcome in compare(runtime, one, judge):
            played += 1
            if outcome.kind == "agrees":
                report.agreed[outcome.theirs] += 1
            elif outcome.kind == "deviates":
                report.deviated[" + ".join(outcome.deviations)] += 1
            else:
                report.differing.append((one, outcome))
        asked = sum(isinstance(step, Registers) for step in one.steps)
        report.unplayed["registrations that Dynamo could not play"] += asked - played
    return report


def smallest(runtime: Runtime, one: Case, judge: Judge = ours.judged) -> Outcome | None:
    """Return a difference with as little in it as could be found; None if there is none."""
    found = _difference(runtime, one, judge)
    while found is not None:
        one = msgspec.structs.replace(one, steps=found.steps)
        for smaller in simpler(one):
            less = _difference(runtime, smaller, judge)
            if less is not None:
                found = less
                break
        else:
            return found
    return None


def _difference(runtime: Runtime, one: Case, judge: Judge) -> Outcome | None:
    outcomes = compare(runtime, one, judge)
    return next((outcome for outcome in outcomes if outcome.kind == "differs"), None)


def told(report: Report, runtime: Runtime, judge: Judge = ours.judged) -> str:
    """Return the report in words, each difference with the least that shows it."""
    lines = [f"{report.cases} cases, {report.agreed.total()} registrations agree: "]
    lines[0] += ", ".join(f"{count} {word}" for word, count in report.agreed.most_common())
    lines += [f"{count:6} deviate: {name}" for name, count in report.deviated.most_common()]
    lines += [f"{count:6} {name}" for name, count in report.unplayed.items() if count]
    lines.append(f"{len(report.differing):6} DIFFER")
    for one, outcome in report.differing:
        least = smallest(runtime, one, judge) or outcome
        lines.append(f"case {one.number} of seed {one.seed}:")
        lines += [f"    {str(step)[:_LONGEST]}" for step in least.steps]
        lines.append(f"    Dynamo: {least.theirs}; discoveryd: {least.ours}")
    return "\n".join(lines)
