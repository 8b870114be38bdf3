"""Every input that the fuzzer kept is replayed: each goes a way through the code of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_fuzzer_kept_breaks_no_promise(name: str) -> None:
    target: Callable[[bytes], None] = TARGETS[name]
    inputs = sorted((CORPUS / name).iterdir())
    assert len(inputs) > 20
    for path in inputs:
        try:
            target(path.read_bytes())
        except BaseException as error:
            error.add_note(f"found by {path}")
            raise
