"""The client in C counts what is answered, and says so when nothing is."""

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.volley import Volley

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(shutil.which("cc") is None, reason="NOT TESTED: there is no C compiler"),
]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Path]:
    """A socket where everything is answered, byte by byte."""
    path = Path(os.path.relpath(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            # The client leaves with a reply on its way.
            with connection, contextlib.suppress(ConnectionError):
                while received := connection.recv(4096):
                    connection.sendall(b"\0" * received.count(b"\0"))

        thread = threading.Thread(target=answer)
        thread.start()
        yield path
        thread.join(30)


def test_a_time_that_was_over_before_it_began_is_made_up_for(
    tmp_path: Path, answering: Path
) -> None:
    """As on a machine that stood still: no calls in no time would be no number."""
    volley = Volley(tmp_path, None)
    counted = volley.ask(
        "varlink", answering, volley.frames([b"{}\0"]), connections=1, pipeline=1, seconds=0
    )
    assert counted.calls >= 1
    assert counted.calls_per_second > 0
