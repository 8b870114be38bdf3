"""The command `discoveryctl adopt` as a process, for tests."""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.system.running import PROMPT_SECONDS, REPOSITORY, Daemon, environment

_PROGRAM = "from discoveryd.client.ctl.start import main; main()"


class Adopting:
    """`discoveryctl adopt` for a daemon, with these arguments; it writes to the file `output`.

    `piped`: only what it complains of; the rest goes into a pipe, which nobody reads.
    """

    def __init__(
        self,
        daemon: Daemon,
        output: Path,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        piped: bool = False,
    ) -> None:
        self._output = output
        command = [sys.executable, "-c", _PROGRAM, "--socket", str(daemon.socket), "adopt"]
        with output.open("wb") as written:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=REPOSITORY,
                env=environment(**environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else written,
                stderr=written,
            )

    @property
    def output(self) -> str:
        """Everything that it has written."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> int:
        """Return its exit status."""
        return self.process.wait(PROMPT_SECONDS)

    def end(self, number: signal.Signals) -> int:
        """Send it a signal; return its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def stop_reading(self) -> None:
        """Close the pipe that it writes to."""
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill(self) -> None:
        """Kill it, if it lives yet."""
        self.stop_reading()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
