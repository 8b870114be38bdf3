"""The benchmark: `python -m tests.bench [PART ...]` measures, and prints one table in Markdown.

Progress goes to standard error. A part that fails takes no other down, but the exit status is 1;
a target that is missed is marked, and no failure. A peer that is not installed is said so in its
row: `python -m tests.bench --install-peers` installs them, outside of the project.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.bench import apart, machine, report
from tests.bench.peers import installing
from tests.bench.table import Setup

PARTS = {
    "resolve": "tests.bench.resolve",
    "latency": "tests.bench.latency",
    "answer-peers": "tests.bench.beside.answer",
    "death": "tests.bench.death",
    "death-peers": "tests.bench.beside.death",
    "growth": "tests.bench.growth",
    "admission-peers": "tests.bench.beside.admission",
    "start": "tests.bench.start",
    "start-peers": "tests.bench.beside.start",
    "memory": "tests.bench.memory",
    "fanout": "tests.bench.fanout",
    "idle": "tests.bench.idle",
    "load": "tests.bench.load",
    "oracle": "tests.bench.oracle.part",
}
"""The word that chooses a part, and its module; in the order in which they are run."""


def main(arguments: list[str]) -> int:
    """Do what the command line says; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    unknown = [part for part in asked.part if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if asked.table is not None:
        sys.stdout.write(report.load(asked.table).markdown(promised=asked.promised))
        return 0
    if asked.install_peers:
        problems = installing.install(asked.peers, _progress)
        for problem in problems:
            _progress(f"NOT INSTALLED: {problem}")
        return 1 if problems else 0
    chosen = {part: PARTS[part] for part in PARTS if part in asked.part or not asked.part}
    made = run(chosen, Setup(quick=asked.quick, peers=asked.peers), asked.json)
    sys.stdout.write(made.markdown(promised=asked.promised))
    return 1 if made.failed else 0


def run(parts: dict[str, str], setup: Setup, path: Path | None) -> report.Report:
    """Measure parts one after another, until interrupted; what there is so far is in the file."""
    made = report.Report(machine=machine.described(setup.peers), quick=setup.quick)
    for part, module in parts.items():
        _progress(f"{part} ...")
        began = time.monotonic()
        try:
            for row in apart.rows(module, setup):
                made.rows.append(row)
                _progress(report.line(row))
                _save(made, path)
        except apart.Failed as why:
            made.failed[part] = str(why).strip().split("\n")[-1]
            _progress(f"{part} FAILED: {why}")
        except KeyboardInterrupt:
            made.failed[part] = "interrupted, and what comes after it was not begun"
            break
        made.took_seconds[part] = time.monotonic() - began
        _progress(f"{part} took {made.took_seconds[part]:.0f} s")
        _save(made, path)
    return made


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; else all")
    parser.add_argument("--quick", action="store_true", help="seconds, not minutes: does it run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there as well")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file")
    parser.add_argument("--promised", action="store_true", help="show only rows with a target")
    parser.add_argument("--peers", type=_place, metavar="DIR", default=_cache(), help="%(default)s")
    parser.add_argument("--install-peers", action="store_true", help="install them, and end")
    return parser


def _place(named: str) -> Path:
    """Return a directory so that programs which run elsewhere find it too."""
    return Path(named).absolute()


def _cache() -> Path:
    """Return where a user's programs keep what they can fetch again."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "discoveryd-bench"


def _save(made: report.Report, path: Path | None) -> None:
    if path is not None:
        made.save(path)


def _progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
