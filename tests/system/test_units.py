"""What this machine's own systemd says about the units, without running them.

The tests in tests/systemd run them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parent.parent.parent / "systemd"
TOOL = shutil.which("systemd-analyze")
MOST_EXPOSED = 10
"""In tenths of a point, as the option wants them."""
KNOWS_RELOAD = 253
UNKNOWN_TYPE = "Failed to parse service type, ignoring: notify-reload"

pytestmark = pytest.mark.skipif(TOOL is None, reason="NOT TESTED: there is no systemd-analyze here")


def analyze(*arguments: str, runtime: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the tool."""
    assert TOOL is not None
    environ = os.environ if runtime is None else os.environ | {"XDG_RUNTIME_DIR": str(runtime)}
    command = [TOOL, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def version() -> int:
    """Return which systemd this is."""
    found = re.match(r"systemd (\d+)", analyze("--version").stdout)
    assert found is not None
    return int(found[1])


def installed(kind: str, into: Path) -> list[str]:
    """Copy units, with commands that are there; return the paths of the copies."""
    copies: list[str] = []
    for unit in sorted((UNITS / kind).iterdir()):
        copy = into / unit.name
        commands = r"(?m)^(ExecStart=)\S+"
        copy.write_text(re.sub(commands, rf"\g<1>{sys.executable}", unit.read_text()))
        copies.append(str(copy))
    return copies


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_does_not_know_one_service_type_at_most(kind: str, tmp_path: Path) -> None:
    whose = ["--user"] if kind == "user" else []
    done = analyze("verify", "--man=no", *whose, *installed(kind, tmp_path), runtime=tmp_path)
    complaints = {line.partition(": ")[2] for line in done.stderr.splitlines()}
    assert complaints == (set() if version() >= KNOWS_RELOAD else {UNKNOWN_TYPE})
    assert done.returncode == 0


def test_an_older_systemd_is_content_with_its_drop_in(tmp_path: Path) -> None:
    copies = installed("system", tmp_path)
    drop_ins = tmp_path / "discoveryd.service.d"
    drop_ins.mkdir()
    shutil.copy(UNITS / "drop-ins/systemd-252.conf", drop_ins)
    service = tmp_path / "discoveryd.service"
    text = service.read_text()
    assert "Type=notify-reload\n" in text
    service.write_text(text.replace("Type=notify-reload\n", ""))
    done = analyze("verify", "--man=no", *copies)
    assert (done.returncode, done.stderr) == (0, "")


def test_little_of_the_host_is_exposed_to_the_daemon() -> None:
    service = UNITS / "system/discoveryd.service"
    done = analyze(
        "security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSED}", str(service)
    )
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_each_drop_in_says_where_to_put_it() -> None:
    for drop_in in (UNITS / "drop-ins").iterdir():
        assert re.search(
            rf"^# Place: /etc/systemd/system/discoveryd\.(service|socket)\.d/{drop_in.name}$",
            drop_in.read_text(),
            re.MULTILINE,
        ), drop_in
