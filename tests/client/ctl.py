"""discoveryctl within the test's own process: what a call printed, and its exit status."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from discoveryd.client.ctl.cli import run

USAGE = 2
EVIL = "\x1b[2J\u202egpt\u2066"
"""A name that would clear the screen and turn the text around."""


class Outcome:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


Ctl = Callable[..., Outcome]


def caller(capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Return what runs discoveryctl with arguments."""

    def call(*args: str) -> Outcome:
        status = run(args)
        return Outcome(status, *capsys.readouterr())

    return call
