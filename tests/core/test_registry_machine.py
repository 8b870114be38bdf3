"""Random histories: the real registry says what the plain one says, after every batch.

By default a few hundred short histories. For a long run:
`DISCOVERYD_EXAMPLES=20000 pytest tests/core/test_registry_machine.py`.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Change, Served, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.registry import Registry
from discoveryd.core.state import (
    EntryState,
    FileState,
    entry_state,
    file_state,
    put_back,
    take_out,
)
from discoveryd.core.verdict import Serves, Standing, Verdict
from tests.core.cards import card
from tests.core.plain import PlainRegistry
from tests.core.recipes import (
    FILES,
    NAMES,
    Directory,
    Operation,
    Recipe,
    disturbances,
    edits,
    exchanges,
    files,
    mtimes,
    operations,
    operator_tables,
    owners,
    puts,
    recipes,
)

EXAMPLES = int(os.environ.get("DISCOVERYD_EXAMPLES", "300"))

UNSEEN = ("content", "warnings", "liveness", "anchored", "half_adapter")
"""Members of a card that no answer shows."""

Line = tuple[str, str, int, bool]


def seen(served: Served) -> object:
    """What an answer shows of a served version, and its place."""
    members = {f: getattr(served.card, f) for f in Card.__struct_fields__ if f not in UNSEEN}
    return served.file, served.admission, members


def said(verdict: Verdict) -> object:
    """What a verdict says that the registry has to announce, reasons of waiting cards apart.

    Those are worked out when asked for: which of several rivals they name may change unannounced.
    """
    own = verdict.standing in (Standing.INVALID, Standing.FORBIDDEN, Standing.EXPIRED)
    return (
        verdict.key,
        verdict.names,
        verdict.standing,
        verdict.serves,
        verdict.reasons if own else None,
        verdict.warnings,
        verdict.owner_uid,
    )


class RegistryMachine(RuleBasedStateMachine):
    by_owner = False
    usual_owners: Mapping[str, int] = MappingProxyType({})

    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory(owners=self.usual_owners)
        self.plain = PlainRegistry(by_owner=self.by_owner)
        self.ranks: Callable[[], int] = count(1).__next__
        self.real = Registry(self.ranks, by_owner=self.by_owner)
        self.answers = Answers("epoch")
        self.now = 0.0
        self.kept_files: dict[str, FileState | None] = {}
        self.kept_entries: dict[Key, EntryState | None] = {}
        self.copy_cursor = self.answers.cursor
        self.copy_workers: dict[Key, Served] = {}
        self.copy_lines: dict[str, Line] = {}

    # Rules

    @initialize(contents=st.dictionaries(files, recipes))
    def begin(self, contents: dict[str, Recipe]) -> None:
        self._step([("put", file, recipe) for file, recipe in contents.items()])

    @rule(drawn=st.lists(puts, min_size=1, max_size=3), mtimes=mtimes, owners=owners)
    def arrive(
        self, drawn: list[Operation], mtimes: dict[str, int], owners: dict[str, int]
    ) -> None:
        self._step(drawn, mtimes, owners)

    @rule(drawn=st.lists(edits, min_size=1, max_size=4))
    def edit(self, drawn: list[Operation]) -> None:
        self._step(drawn)

    @rule(drawn=exchanges)
    def exchange(self, drawn: Operation) -> None:
        self._step([drawn])

    @rule(drawn=st.lists(disturbances, min_size=1, max_size=2))
    def disturb(self, drawn: list[Operation]) -> None:
        self._step(drawn)

    @rule(
        drawn=st.lists(operations, min_size=2, max_size=5),
        mtimes=mtimes,
        owners=owners,
        operator_aliases=st.one_of(st.none(), operator_tables),
    )
    def do_all_at_once(
        self,
        drawn: list[Operation],
        mtimes: dict[str, int],
        owners: dict[str, int],
        operator_aliases: dict[str, str] | None,
    ) -> None:
        self._step(drawn, mtimes, owners, operator_aliases)

    @rule(operator_aliases=operator_tables)
    def reload(self, operator_aliases: dict[str, str]) -> None:
        self._step([], operator_aliases=operator_aliases)

    @rule(file=files, recipe=recipes)
    def check_a_newcomer(self, file: str, recipe: Recipe) -> None:
        if file in self.plain.files:
            self._step([("remove", file)])
        owner = self.usual_owners.get(file, 1000)
        newcomer = Sighting(file=file, found=card(**recipe), owner=owner)
        verdict, displaced = self.real.check(newcomer)
        before = self.plain.verdicts()
        self._step([("put", file, recipe)])
        assert verdict.standing == self.plain.standing(file)
        assert verdict.serves == self.plain.serves(file)
        assert not displaced or verdict.standing is Standing.SERVING
        for other in displaced:
            assert before[other][1] is Serves.PREVIOUS
            assert self.plain.serves(other) is not Serves.PREVIOUS

    @rule(file=files, recipe=recipes)
    def check_an_edit_and_leave_it(self, file: str, recipe: Recipe) -> None:
        before = take_out(self.real)
        verdict, _ = self.real.check(Sighting(file=file, found=card(**recipe), owner=1000))
        assert verdict.standing not in (Standing.INVALID, Standing.FORBIDDEN, Standing.EXPIRED)
        assert (verdict.serves is Serves.CURRENT) == (verdict.standing is Standing.SERVING)
        assert take_out(self.real) == before

    @rule()
    def restart(self) -> None:
        state = take_out(self.real)
        self.real, same = put_back(state, self.ranks, by_owner=self.by_owner)
        assert same
        assert take_out(self.real) == state

    @rule()
    def catch_up(self) -> None:
        difference = self.answers.history.since(self.copy_cursor)
        assert not difference.reset
        for key in difference.keys:
            self.copy_workers.pop(key, None)
            if key in self.answers.workers:
                self.copy_workers[key] = self.answers.workers[key]
        for name in difference.names:
            line = self.answers.line(name)
            self.copy_lines.pop(name, None)
            if line is not None:
                self.copy_lines[name] = line[1:]
        shown = {key: seen(served) for key, served in self.copy_workers.items()}
        assert shown == {key: seen(served) for key, served in self.answers.workers.items()}
        assert self.copy_lines == self._lines()
        self.copy_cursor = self.answers.cursor

    # What holds after every one

    @invariant()
    def all_that_is_served_coexists(self) -> None:
        assert self.plain.broken() == []

    @invariant()
    def the_pieces_that_changes_name_make_the_whole_state(self) -> None:
        state = take_out(self.real)
        files = {file: kept for file, kept in self.kept_files.items() if kept is not None}
        entries = {key: kept for key, kept in self.kept_entries.items() if kept is not None}
        assert files == {kept.file: kept for kept in state.files}
        assert entries == {kept.key: kept for kept in state.entries}

    @invariant()
    def verdicts_agree(self) -> None:
        expected = self.plain.verdicts()
        verdicts = {file: self.real.verdict(file) for file in (*FILES, *expected)}
        assert {
            file: (verdict.standing, verdict.serves)
            for file, verdict in verdicts.items()
            if verdict is not None
        } == expected
        assert +self.real.standings == Counter(standing for standing, _ in expected.values())
        assert {verdict.file for verdict in self.real.unsettled()} == {
            file for file, (_, serves) in expected.items() if serves is not Serves.CURRENT
        }
        for verdict in verdicts.values():
            if verdict is not None and verdict.standing is not Standing.SERVING:
                assert verdict.reasons

    @invariant()
    def served_cards_agree(self) -> None:
        served = {key: (s.card, s.file, s.firm) for key, s in self.real.served.items()}
        assert list(served.items()) == list(self.plain.served().items())
        ranks = [s.admission for s in self.real.served.values()]
        assert ranks == sorted(set(ranks))

    @invariant()
    def answers_agree(self) -> None:
        assert self._lines() == self.plain.names()
        for name in NAMES:
            found = self.answers.resolve(name)
            workers = [] if found is None else [worker.card.key for worker in found[0].workers]
            assert workers == self.plain.answer(name)

    def _lines(self) -> dict[str, Line]:
        lines = list(self.answers.lines())
        assert self.answers.models == sum(line.kind in {"primary", "adapter"} for line in lines)
        assert len({line.name for line in lines}) == len(lines)
        return {line.name: line[1:] for line in lines}

    # One batch

    def _step(
        self,
        drawn: Iterable[Operation],
        mtimes: Mapping[str, int] = MappingProxyType({}),
        owners: Mapping[str, int] = MappingProxyType({}),
        operator_aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.now += 1
        sightings = self.directory.sightings(drawn, mtimes=mtimes, owners=owners)
        self._apply(Batch(sightings=sightings, operator_aliases=operator_aliases, now=self.now))

    def _apply(self, batch: Batch) -> None:
        served = dict(self.real.served)
        verdicts = self._verdicts()
        operators = dict(self.plain.operators)
        self.plain.apply(batch)
        change = self.real.apply(batch)
        cursor = self.answers.cursor
        self.answers.publish(change)
        assert (self.answers.cursor == cursor) == change.empty
        self._change_tells_all(change, served, verdicts, batch)
        self.kept_files.update({file: file_state(self.real, file) for file in change.files})
        self.kept_entries.update({key: entry_state(self.real, key) for key in change.keys})
        told = change.operator_aliases
        assert told == (None if self.plain.operators == operators else self.plain.operators)

    def _verdicts(self) -> dict[str, Verdict]:
        verdicts = {file: self.real.verdict(file) for file in self.plain.files}
        return {file: verdict for file, verdict in verdicts.items() if verdict is not None}

    def _change_tells_all(
        self,
        change: Change,
        served: Mapping[Key, Served],
        verdicts: Mapping[str, Verdict],
        batch: Batch,
    ) -> None:
        now = self.real.served
        looks = {key: seen(version) for key, version in served.items()}
        present = {key: seen(version) for key, version in now.items()}
        assert set(change.served) == {
            key for key in looks.keys() | present.keys() if looks.get(key) != present.get(key)
        }
        assert all(version == now.get(key) for key, version in change.served.items())
        after = self._verdicts()
        assert set(change.forgotten) == verdicts.keys() - after.keys()
        assert set(change.judged) == {
            file
            for file, verdict in after.items()
            if file not in verdicts or said(verdicts[file]) != said(verdict)
        }
        assert len(set(change.judged)) == len(change.judged)
        for file, verdict in after.items():
            since = batch.now if file in change.judged else verdicts[file].since
            assert verdict.since == since


class OwnersMachine(RegistryMachine):
    """The same where owners count, of whom there are two."""

    by_owner = True
    usual_owners = MappingProxyType(dict.fromkeys(FILES[1::2], 1001))


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
RegistryMachine.TestCase.settings = OwnersMachine.TestCase.settings = SETTINGS
in_time = pytest.mark.timeout(0 if EXAMPLES > 300 else 120)
TestRegistryMachine = in_time(RegistryMachine.TestCase)
TestOwnersMachine = in_time(OwnersMachine.TestCase)
