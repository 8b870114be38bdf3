"""The oracle by itself: `python -m tests.bench.oracle PYTHON [--seed SEED] [--cases N] [--case N]`.

PYTHON is that of an environment with `ai-dynamo-runtime`. `--case` plays a single case again, and
shows it.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.bench.oracle import comparing
from tests.bench.oracle.cases import case
from tests.bench.oracle.runtime import Runtime


def main() -> None:
    """Compare, and print the report; the exit status is 1 where there are differences."""
    arguments = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    arguments.add_argument("python", type=Path)
    arguments.add_argument("--seed", default="1")
    arguments.add_argument("--cases", type=int, default=10_000)
    arguments.add_argument("--case", type=int)
    given = arguments.parse_args()
    numbers = range(given.cases) if given.case is None else (given.case,)
    began = time.monotonic()
    with Runtime(given.python) as runtime:
        if given.case is not None:
            for step in case(given.seed, given.case).steps:
                sys.stdout.write(f"{step}\n")
        report = comparing.run(runtime, given.seed, numbers)
        sys.stdout.write(f"{comparing.told(report, runtime)}\n")
    sys.stdout.write(f"seed {given.seed}, {time.monotonic() - began:.0f} s\n")
    sys.exit(bool(report.differing))


if __name__ == "__main__":
    main()
