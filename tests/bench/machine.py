"""What a run was made on: the machine, the interpreter, and the versions of ours and of the peers'.

Numbers without these are of no use to anybody else, and next to none a year later.
"""

import datetime as dt
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from tests.bench.peers import dynamo

PACKAGES = ("uvloop", "msgspec", "watchfiles")
PROGRAMS = {"Redis": "redis-server", "etcd": "etcd"}
ABSENT = "not here"


def described(peers: Path) -> dict[str, str]:
    """Return what to say beside the table, what it is about first."""
    load, _, _ = os.getloadavg()
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processors": f"{len(os.sched_getaffinity(0))} x {_processor()}",
        "kernel": f"{platform.system()} {platform.release()}",
        "load before": f"{load:.1f}",
        "Python": platform.python_version(),
        **{package: metadata.version(package) for package in PACKAGES},
        **{name: _version(program) for name, program in PROGRAMS.items()},
        "Dynamo": dynamo.version(peers) or ABSENT,
    }


def _processor() -> str:
    said = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.+)$", said, re.MULTILINE)
    return found[1] if found else platform.machine()


def _version(program: str) -> str:
    if shutil.which(program) is None:
        return ABSENT
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    return found[0] if found else "of unknown version"
