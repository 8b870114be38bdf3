"""The oracle by itself: `python -m tests.bench.oracle PYTHON`, with a seed of your own.

PYTHON is that of an environment with `ai-dynamo-runtime`. With `--case N` a single case is played
again, and shown; with `--frontend PYTHON`, of an environment with the frontend, names are compared
instead of verdicts.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.bench.oracle import comparing, listing, part
from tests.bench.oracle.cases import case
from tests.bench.oracle.runtime import Runtime


def main() -> None:
    """Compare, and print the report; the exit status is 1 where there are differences."""
    given = _parser().parse_args()
    began = time.monotonic()
    with Runtime(given.python) as runtime:
        if given.frontend is None:
            differing = _verdicts(runtime, given)
        else:
            names = listing.run(
                runtime, given.frontend, seed=given.seed, worlds=given.worlds, events=given.events
            )
            sys.stdout.write(f"{listing.told(names)}\n")
            differing = bool(names.differing)
    sys.stdout.write(f"seed {given.seed}, {time.monotonic() - began:.0f} s\n")
    sys.exit(differing)


def _verdicts(runtime: Runtime, given: argparse.Namespace) -> bool:
    numbers = range(given.cases)
    if given.case is not None:
        numbers = range(given.case, given.case + 1)
        for step in case(given.seed, given.case).steps:
            sys.stdout.write(f"{step}\n")
    report = comparing.run(runtime, given.seed, numbers)
    sys.stdout.write(f"{comparing.told(report, runtime)}\n")
    return bool(report.differing)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.oracle", description=__doc__)
    parser.add_argument("python", type=Path, metavar="PYTHON")
    parser.add_argument("--seed", default=part.SEED)
    parser.add_argument("--cases", type=int, default=part.CASES, metavar="N")
    parser.add_argument("--case", type=int, metavar="N")
    parser.add_argument("--frontend", type=Path, metavar="PYTHON")
    parser.add_argument("--worlds", type=int, default=part.WORLDS, metavar="N")
    parser.add_argument("--events", type=int, default=part.EVENTS, metavar="N")
    return parser


if __name__ == "__main__":
    main()
