"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz.run card -max_total_time=600`.

The first argument is a target of targets.py; the rest is libFuzzer's. New inputs are kept in the
first directory that is named, so name one of your own: tests/fuzz/corpus/TARGET, which always comes
last, is small and chosen. To choose anew: `-merge=1 tests/fuzz/corpus/TARGET YOURS`.
atheris is no part of the project's test dependencies: `pip install atheris`.
"""

import importlib
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
DICTIONARY = Path(__file__).parent / "tokens.dict"


def main() -> None:
    """Fuzz until libFuzzer's arguments say that it is enough; a found fault ends the program."""
    # By name, since it is not installed where types are checked.
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["discoveryd"]):
        targets = importlib.import_module("tests.fuzz.targets")
    name, arguments = sys.argv[1], sys.argv[2:]
    usual = ["-max_len=4096", "-timeout=10", f"-dict={DICTIONARY}"]
    if not any(argument.startswith("-merge") for argument in arguments):
        arguments = [*arguments, str(CORPUS / name)]
    # By its own name libFuzzer starts itself again: to merge, and for several jobs.
    myself = f"{sys.executable} -m tests.fuzz.run {name}"
    atheris.Setup([myself, *usual, *arguments], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
