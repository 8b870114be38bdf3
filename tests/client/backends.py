"""Tests that are written once and run on both of the loops that the async clients promise."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

BACKENDS = ("asyncio", "trio")

_PATIENCE_SECONDS = 50.0


def on_both(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make two tests of an async one, which takes fixtures that are not async."""

    def run(backend: str, **fixtures: Any) -> None:
        async def in_time() -> None:
            with anyio.fail_after(_PATIENCE_SECONDS):
                await test(**fixtures)

        anyio.run(in_time, backend=backend)

    signature = inspect.signature(run)
    parameters = [signature.parameters["backend"], *inspect.signature(test).parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what pytest reads
    run.__name__ = test.__name__
    pytest.mark.parametrize("backend", BACKENDS)(run)
    return run


async def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait until the condition holds; fail where it does not in time."""
    with anyio.move_on_after(seconds):
        while not condition():
            await anyio.sleep(0.002)  # between two looks
        return
    raise AssertionError(f"not within {seconds} s: {what}")
