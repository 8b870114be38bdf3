"""A real system to run the units on: Debian 13, with systemd as its first process.

It is built once by debootstrap, kept in a cache, and booted by systemd-nspawn. What happens in a
box stays in memory and is gone with it, so each boot begins alike. It has no network but its
loopback. Commands are run in it by entering its namespaces, as root or as a user of the box. What
is tried in it, and what is installed, is the tests' business.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.system.running import until

SUITE = "trixie"
PACKAGES = (
    "dbus",
    "libpam-systemd",
    "procps",
    "python3",
    "python3-venv",
    "systemd",
    "systemd-sysv",
)
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "setpriv", "unshare")
BUILD_SECONDS = 600
BOOT_SECONDS = 90
RUN_SECONDS = 120
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotBoot(Exception):
    """This machine can build or boot no box; the text says why."""


class Failed(AssertionError):
    """A command in the box did not end with status 0, or a box that should be built is not."""


class Done(NamedTuple):
    """A command that has ended: its status, and what it wrote."""

    status: int
    output: str
    errors: str


def check_tools() -> None:
    """Raise CannotBoot unless a box can be tried on this machine."""
    if os.geteuid() != 0:
        raise CannotBoot("a box needs root")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotBoot(f"not installed: {', '.join(missing)}")


def build() -> Path:
    """Return the root of a fresh system, from the cache where there is one.

    Raises CannotBoot where the mirror cannot be reached, Failed where building fails otherwise.
    """
    recipe = " ".join((SUITE, platform.machine(), *PACKAGES))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir())
    root = cache / f"discoveryd-box-{digest}"
    if root.is_dir() and not root.is_symlink() and root.stat().st_uid == 0:
        return root
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{root.name}.", dir=cache))
    unfinished.chmod(0o755)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    try:
        done = subprocess.run(
            [*command, SUITE, str(unfinished)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if "Failed getting release file" in done.stdout:
            raise CannotBoot(f"no box is here, and no mirror to build one from:\n{done.stdout}")
        if done.returncode != 0:
            raise Failed(f"debootstrap: {done.returncode}\n{done.stdout[-4000:]}")
        try:
            unfinished.rename(root)
        except OSError:
            if not root.is_dir():  # else somebody else has built it meanwhile
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return root


class Box:
    """A system that runs."""

    def __init__(self, leader: int, group: Path) -> None:
        """`leader` is the box's first process, as this machine numbers it; `group` its own."""
        commands = group / "commands"
        commands.mkdir(exist_ok=True)
        self._enter = [*_within(commands), "nsenter", "--target", str(leader), "--all", "--"]

    def run(
        self,
        script: str,
        *,
        user: str | None = None,
        environ: Mapping[str, str] | None = None,
        seconds: float = RUN_SECONDS,
    ) -> Done:
        """Run a shell's script in the box, as root or as `user`, until it ends.

        A `user` has his groups, and the variables of his own systemd.
        """
        done = subprocess.run(
            self._command(script, user, environ or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def must(
        self,
        script: str,
        *,
        user: str | None = None,
        environ: Mapping[str, str] | None = None,
        seconds: float = RUN_SECONDS,
    ) -> str:
        """Run a script, and return what it wrote to standard output; fail unless it succeeds."""
        done = self.run(script, user=user, environ=environ, seconds=seconds)
        if done.status != 0:
            raise Failed(f"{script}\nstatus {done.status}\n{done.output}{done.errors}")
        return done.output

    @contextlib.contextmanager
    def beside(self, script: str, *, user: str | None = None) -> Iterator[subprocess.Popen[str]]:
        """Run a script beside the test; at the end of the block it is killed where it still runs.

        Its standard output is a pipe, to which its errors go, too; its standard input is another.
        """
        process = subprocess.Popen(
            self._command(script, user, {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, script: str, user: str | None, environ: Mapping[str, str]) -> list[str]:
        home = "/root" if user is None else f"/home/{user}"
        variables = {"PATH": PATH, "HOME": home, "LC_ALL": "C.UTF-8", **environ}
        command = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        if user is not None:
            command += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
            script = f"export XDG_RUNTIME_DIR=/run/user/$(id -u)\n{script}"
        return [*self._enter, *command, "sh", "-c", f"cd\n{script}"]


@contextlib.contextmanager
def booted(root: Path, binds: Mapping[Path, str], log: Path) -> Iterator[Box]:
    """Boot the system below `root`, which stays as it is, and end it with the block.

    Each directory of `binds` is seen in the box, read-only, under the path that it is mapped to.
    What the box writes on its console goes to `log`. Raises CannotBoot where it does not come up:
    nothing of ours is in it yet.
    """
    # All of it is in a namespace of processes whose first one dies with this test.
    command = ["setpriv", "--pdeathsig=KILL", "--"]
    command += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    command += ["systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay"]
    command += ["--register=no", "--keep-unit", "--private-network", "--console=pipe"]
    command += [f"--bind-ro={outside}:{inside}" for outside, inside in binds.items()]
    with _group() as group, log.open("wb") as console:
        process = subprocess.Popen(
            [*_within(group), *command, "--boot"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            # As on today's hosts, also where this one still has the older hierarchies.
            env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        )
        try:
            yield _wait_up(process, group / "payload", log)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """Give a control group of its own: boxes that shared one would take each other's for theirs."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    if not points:
        raise CannotBoot("no control groups (version 2) are mounted")
    own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    try:
        group = Path(tempfile.mkdtemp(prefix="discoveryd-box-", dir=Path(points[0]) / own))
    except OSError as reason:
        raise CannotBoot(f"no control group can be made: {reason}") from reason
    try:
        yield group
    finally:
        until(lambda: "populated 0" in (group / "cgroup.events").read_text(), "an empty group", 30)
        for inner, _, _ in os.walk(group, topdown=False):
            Path(inner).rmdir()


def _within(group: Path) -> list[str]:
    """Return a command that runs the one which is appended to it in a control group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


def _wait_up(process: subprocess.Popen[bytes], group: Path, log: Path) -> Box:
    """Return the box once it has booted. systemd-nspawn makes its `group`."""
    deadline = time.monotonic() + BOOT_SECONDS
    state = "starting"
    while process.poll() is None and time.monotonic() < deadline:
        leader = _descendant(process.pid, generations=2)
        if leader is not None and group.is_dir():
            box = Box(leader, group)
            state = box.run("systemctl is-system-running --wait").output.strip()
            if state == "running":
                return box
            if state == "degraded":
                failed = box.run("systemctl --failed --plain --no-legend").output
                raise CannotBoot(f"in a fresh box something has failed:\n{failed}")
        time.sleep(0.1)  # between two looks
    said = log.read_text(errors="replace")
    raise CannotBoot(f"a box does not boot here ({state}):\n{said[-4000:]}")


def _descendant(pid: int, generations: int) -> int | None:
    """Return the process that is the first child of the first child, and so on, of `pid`."""
    for _ in range(generations):
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        if not children:
            return None
        pid = int(children[0])
    return pid
