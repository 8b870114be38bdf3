"""What is measured of a daemon is the daemon's."""

import subprocess
import sys

from tests.bench import daemons

BUSY = """
import threading, time
def spin():
    while time.thread_time() < 0.2:
        pass
thread = threading.Thread(target=spin)
thread.start()
thread.join()
print(time.process_time(), flush=True)
input()
"""


def test_processor_time_counts_threads_that_have_ended() -> None:
    with daemons.workplace() as place:
        command = [sys.executable, "-c", BUSY]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            said = float(process.stdout.readline())
            busy = daemons.Daemon(process, place / "cards", place / "socket")
            assert said <= busy.cpu_seconds() < said + 1
            process.kill()
