"""One part in a process of its own: what it leaves in memory or pins, or dies of, is its own."""

import importlib
import multiprocessing
import os
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection

from tests.bench.table import Part, Row, Setup

END_SECONDS = 30.0
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


class Failed(Exception):
    """A part has not yielded all its rows. The text says why, with its traceback if it has one."""


def rows(module: str, setup: Setup) -> Iterator[Row]:
    """Yield a part's rows as they are ready; raise Failed where it ends before its end."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(module, setup, sending))
    with receiving:
        process.start()
        sending.close()
        try:
            yield from _received(receiving)
        except EOFError:
            process.join(END_SECONDS)
            raise Failed(f"its process has ended with status {process.exitcode}") from None
        finally:
            process.join(END_SECONDS)
            if process.is_alive():
                process.terminate()
                process.join()


def _received(receiving: Connection) -> Iterator[Row]:
    while True:
        match receiving.recv():
            case Row() as row:
                yield row
            case str(why):
                raise Failed(why)
            case _:
                return


def _measure(module: str, setup: Setup, sending: Connection) -> None:
    """Send rows; then None, or in words why there are no more. Standard output is the table's."""
    os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    try:
        part: Part = importlib.import_module(module)
        for row in part.measure(setup):
            sending.send(row)
    except Exception:  # noqa: BLE001  # whatever it is, it is told, and other parts are measured
        sending.send(traceback.format_exc())
    else:
        sending.send(None)
