"""Getting the peers: Redis and etcd by apt, Dynamo by pip into environments of its own.

What is there already is left as it is. Without root the first two are left out, and said so.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.peers.dynamo import FRONTEND, RUNTIME

PACKAGES = {"redis-server": "redis-server", "etcd": "etcd-server"}
"""Programs, and the packages of Debian's that bring them."""

VERSION = "1.6.1"
ENVIRONMENTS = {
    RUNTIME: [[f"ai-dynamo-runtime=={VERSION}"]],
    FRONTEND: [
        [f"ai-dynamo-runtime=={VERSION}", "packaging", "pyyaml", "msgspec"],
        ["--no-deps", f"ai-dynamo=={VERSION}"],
    ],
}
"""What pip is told, one call after another: the frontend's own dependencies are whole engines."""

Say = Callable[[str], None]


def install(peers: Path, say: Say) -> list[str]:
    """Install what is missing; return what could not be, and why."""
    problems = [
        problem
        for program, package in PACKAGES.items()
        if shutil.which(program) is None and (problem := _by_apt(package, say)) is not None
    ]
    for environment, calls in ENVIRONMENTS.items():
        problem = _by_pip(peers / environment, calls, say)
        if problem is not None:
            problems.append(problem)
    return problems


def _by_apt(package: str, say: Say) -> str | None:
    if os.geteuid() != 0:
        return f"{package}: it takes root; or: apt-get install {package}"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    say(f"apt-get install {package}")
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", package]):
        done = _run(["apt-get", *command], environment)
        if done is not None:
            return f"{package}: {done}"
    return None


def _by_pip(environment: Path, calls: Sequence[Sequence[str]], say: Say) -> str | None:
    """Make an environment, of this Python: the wheels are for every one from 3.10 on."""
    last = calls[-1][-1].replace("-", "_").replace("==", "-")
    if any(environment.glob(f"lib/python*/site-packages/{last}.dist-info")):
        return None
    say(f"pip install into {environment}")
    commands = [[sys.executable, "-m", "venv", "--clear", str(environment)]]
    python = str(environment / "bin" / "python")
    commands += [[python, "-m", "pip", "install", "-q", *call] for call in calls]
    wrong = next((said for command in commands if (said := _run(command)) is not None), None)
    return None if wrong is None else f"{environment.name}: {wrong}"


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> str | None:
    """Run a command; return its last words if it fails."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as wrong:
        return str(wrong)
    if done.returncode == 0:
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"{command[0]} ended with status {done.returncode}"
