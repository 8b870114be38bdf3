"""Where HTTP is answered: faults of a place are told in the words of who named it."""

from pathlib import Path

import pytest

from discoveryd.daemon.configuration.config import configure
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.http.opening import Http


def test_a_path_that_cannot_be_had_is_said_to_be_that_of_http(tmp_path: Path) -> None:
    taken = tmp_path / "notes"
    taken.write_text("mine")
    for path in (taken, tmp_path / "missing" / "http"):
        http = Http(configure(http=str(path), environ={}, uid=1000))
        with pytest.raises(StartError, match="name another socket with --http"):
            http.claim()
        http.close()
    assert taken.read_text() == "mine"
