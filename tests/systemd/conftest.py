"""One box for all tests of the units, with the daemon installed as the README says.

Where no box can be had the tests are skipped, and say that they tested nothing.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.systemd import box as boxes
from tests.systemd.box import Box
from tests.systemd.host import ASKER, OTHER_WORKER, WORKER, Host

REPOSITORY = Path(__file__).parent.parent.parent
CLONE = ("discoveryd", "systemd", "pyproject.toml", "README.md")
WITHOUT_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "PIP_NO_COLOR": "1"}
Boot = Callable[[], AbstractContextManager[Box]]


def readme_block(number: int) -> str:
    """Return the README's commands: of its section on services, the block of this number."""
    readme = (REPOSITORY / "README.md").read_text()
    section = f"\n{readme}".partition("\n## As a service\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4, "to install, upgrade, remove; for one user"
    return str(blocks[number])


INSTALL, UPGRADE, REMOVE, FOR_ONE_USER = range(4)


@pytest.fixture(scope="session")
def system() -> Path:
    """Give the root of a system to boot."""
    try:
        boxes.check_tools()
        return boxes.build()
    except boxes.CannotBoot as reason:
        pytest.skip(f"NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def boot(system: Path, tmp_path_factory: pytest.TempPathFactory) -> Boot:
    """Give a function that boots a box with a clone, and with wheels of all that it depends on."""
    outside = tmp_path_factory.mktemp("box")
    clone, wheels, inside = (outside / name for name in ("clone", "wheels", "inside"))
    shutil.copytree(Path(__file__).parent / "inside", inside)
    for part in CLONE:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, clone)
    _download(_python_of(system), wheels)
    store = outside / "store"
    shutil.copytree(REPOSITORY / "tests/data/dynamo-store/1.6.1", store)
    binds = {clone: "/clone", wheels: "/wheels", inside: "/inside", store: "/store"}
    log = outside / "console"

    def booted() -> AbstractContextManager[Box]:
        return boxes.booted(system, binds, log)

    return booted


def _python_of(system: Path) -> str:
    (found,) = (system / "usr/bin").glob("python3.[0-9]*[0-9]")
    return found.name.removeprefix("python")


def _download(version: str, wheels: Path) -> None:
    """Fetch wheels of what the package needs to be built and to run, with HTTP."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    package = project["project"]
    extra = package["optional-dependencies"]["http"]
    needed = [*project["build-system"]["requires"], *package["dependencies"], *extra]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, f"--python-version={version}", f"--dest={wheels}", *needed],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise boxes.Failed(f"no wheels for the box:\n{done.stderr}")


@pytest.fixture(scope="session")
def installed(boot: Boot) -> Iterator[Host]:
    """Give a host on which the daemon is a service. Use `host`."""
    with _started(boot) as box:
        yield install(box)


@pytest.fixture
def host(installed: Host) -> Iterator[Host]:
    """Give the host with the daemon running, no cards, and nothing configured."""
    installed.clean()
    before = installed.log()
    yield installed
    said = installed.log().removeprefix(before)
    assert "Traceback" not in said, said


@contextlib.contextmanager
def _started(boot: Boot) -> Iterator[Box]:
    """Boot; skip the test where that cannot be done here."""
    with contextlib.ExitStack() as ends:
        try:
            box = ends.enter_context(boot())
        except boxes.CannotBoot as reason:
            pytest.skip(f"NOT TESTED: {reason}")
        yield box


@pytest.fixture(scope="module")
def another(boot: Boot) -> Iterator[Host]:
    """Give a host of a module's own, on which the daemon is a service: to be changed for good."""
    with _started(boot) as box:
        yield install(box)


def install(box: Box) -> Host:
    """Do in a fresh box what the README says, and make users: two of workers, and one other."""
    in_clone(box, INSTALL)
    for user in (WORKER, OTHER_WORKER):
        box.must(f"useradd --create-home --groups discoveryd-workers {user}")
    box.must(f"useradd --create-home {ASKER}")
    return Host(box)


def in_clone(box: Box, block: int, *, user: str | None = None) -> str:
    """Run one of the README's blocks in a clone of the repository, line by line as it is there."""
    lines = readme_block(block)
    return box.must(
        f"rm -rf clone && cp -r /clone clone && cd clone && set -e\n{lines}",
        user=user,
        environ=WITHOUT_INDEX,
    )
