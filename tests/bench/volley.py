"""The client that asks many things at once, volley.c: compiled, given its frames, and run."""

import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tests.bench.peers.children import Missing

SOURCE = Path(__file__).with_suffix(".c")


class Counted(msgspec.Struct, frozen=True):
    """What one run saw. `failed` is how many of the `calls` got an error, or nil."""

    calls_per_second: float
    p50_us: float
    p99_us: float
    calls: int
    failed: int


class Volley:
    """The compiled client, in `place`; it runs on one processor, if `core` says which."""

    def __init__(self, place: Path, core: int | None) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise Missing("no C compiler here: apt-get install gcc libc6-dev")
        self._place = place
        self._program = place / "volley"
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(self._program), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise Missing(f"cc does not compile {SOURCE.name}: {done.stderr.strip()[-300:]}")
        self._prefix = [] if core is None else ["taskset", "-c", str(core)]

    def frames(self, calls: Iterable[bytes]) -> Path:
        """Write calls down, to be asked in this order."""
        with tempfile.NamedTemporaryFile(dir=self._place, delete=False) as file:
            for call in calls:
                file.write(struct.pack("<I", len(call)) + call)
            return Path(file.name)

    def ask(  # noqa: PLR0913  # one an argument of the client
        self,
        protocol: Literal["varlink", "redis", "http"],
        place: Path | int,
        frames: Path,
        *,
        connections: int,
        pipeline: int,
        seconds: float,
    ) -> Counted:
        """Ask a socket or a port for so long. Raises Missing where the server answers nonsense."""
        numbers: Sequence[object] = (place, connections, pipeline, seconds, frames)
        command = [*self._prefix, str(self._program), protocol, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(done.stderr.strip())
        return msgspec.convert(json.loads(done.stdout), Counted)
