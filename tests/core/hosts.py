"""One face for the plain registry and the real one, for examples that must hold of both."""

from typing import Protocol

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Found
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Serves, Standing
from tests.core.cards import batch
from tests.core.plain import PlainRegistry


class Host(Protocol):
    """A registry and its answers, spoken of by file names."""

    def apply(self, found: Batch) -> None: ...

    def verdict(self, file: str) -> tuple[Standing, Serves] | None: ...

    def served(self) -> dict[str, str]:
        """Return the content served for each file, as `name+alias`, in admission order."""
        ...

    def workers(self, name: str) -> list[str] | None:
        """Return the keys of the accepting workers of a name; None: no such model."""
        ...

    def name(self, name: str) -> tuple[str, str, bool] | None:
        """Return a name's kind, model and readiness."""
        ...


class PlainHost:
    def __init__(self, *, by_owner: bool = False) -> None:
        self.registry = PlainRegistry(by_owner=by_owner)

    def apply(self, found: Batch) -> None:
        self.registry.apply(found)

    def verdict(self, file: str) -> tuple[Standing, Serves] | None:
        return self.registry.verdicts().get(file)

    def served(self) -> dict[str, str]:
        served = self.registry.served().values()
        return {file: "+".join(content.names) for content, file, _ in served}

    def workers(self, name: str) -> list[str] | None:
        if name not in self.registry.names():
            return None
        return [str(key) for key in self.registry.answer(name)]

    def name(self, name: str) -> tuple[str, str, bool] | None:
        known = self.registry.names().get(name)
        return None if known is None else (known[0], known[1], known[3])


class RealHost:
    def __init__(self, *, by_owner: bool = False) -> None:
        self.registry = Registry(by_owner=by_owner)
        self.answers = Answers("epoch")

    def apply(self, found: Batch) -> None:
        self.answers.publish(self.registry.apply(found))

    def verdict(self, file: str) -> tuple[Standing, Serves] | None:
        verdict = self.registry.verdict(file)
        return None if verdict is None else (verdict.standing, verdict.serves)

    def served(self) -> dict[str, str]:
        served = sorted(self.registry.served.values(), key=lambda one: one.admission)
        return {one.file: "+".join(one.card.names) for one in served}

    def workers(self, name: str) -> list[str] | None:
        found = self.answers.resolve(name)
        return None if found is None else [str(worker.card.key) for worker in found[0].workers]

    def name(self, name: str) -> tuple[str, str, bool] | None:
        line = self.answers.line(name)
        return None if line is None else (line.kind, line.model, line.ready)


class Told:
    """What an example reads: put files in, see a line a file."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files: set[str] = set()

    def put(self, **found: Found) -> dict[str, str]:
        """Apply one batch and return the table."""
        return self.apply(batch(found))

    def remove(self, *files: str) -> dict[str, str]:
        """Remove files in one batch and return the table."""
        return self.apply(batch(dict.fromkeys(files)))

    def apply(self, found: Batch) -> dict[str, str]:
        """Apply any batch and return the table."""
        self.host.apply(found)
        self.files |= {sighting.file for sighting in found.sightings}
        return self.table()

    def table(self) -> dict[str, str]:
        """Return each file's standing, and in brackets what it serves where that says more.

        `serving`; `standby`; `standby (m+x)`: waits, and m with its alias x is served still.
        """
        served = self.host.served()
        table = {}
        for file in sorted(self.files):
            verdict = self.host.verdict(file)
            if verdict is None:
                assert file not in served
                continue
            standing, serves = verdict
            assert (serves is Serves.NOTHING) == (file not in served)
            assert (serves is Serves.CURRENT) == (standing is Standing.SERVING)
            kept = f" ({served[file]})" if serves is Serves.PREVIOUS else ""
            table[file] = standing.value + kept
        return table

    def workers(self, name: str) -> list[str] | None:
        """Return the keys of the accepting workers of a name; None: no such model."""
        return self.host.workers(name)

    def name(self, name: str) -> tuple[str, str, bool] | None:
        """Return a name's kind, model and readiness."""
        return self.host.name(name)
