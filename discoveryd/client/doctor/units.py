"""systemd's units of discoveryd, the host's and this user's: whether they run, and why not.

Asks `systemctl show`, whose output is made for programs: a line for each property, an empty one
between units. Where systemd does not run, nothing is asked.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.ctl.mending import in_shell
from discoveryd.client.doctor.findings import Finding, note, ok, wrong

SERVICE = "discoveryd.service"
SOCKET = "discoveryd.socket"

_BOOTED = Path("/run/systemd/system")
_PROPERTIES = "Id,LoadState,ActiveState,SubState,Result,NRestarts,MainPID,FragmentPath"


class Units(NamedTuple):
    """What one systemd, the host's or the user's, knows of its units; or why it does not answer."""

    of_user: bool
    properties: Mapping[str, Mapping[str, str]]
    fault: str | None = None

    @property
    def main_pid(self) -> int:
        """The daemon's process, 0 where it does not run here."""
        pid = self.properties.get(SERVICE, {}).get("MainPID", "0")
        return int(pid) if pid.isdecimal() else 0


def look_at_units(*, of_user: bool, seconds: float) -> Units | None:
    """Ask systemd; None where it does not run. Takes up to `seconds`. Raises OSError."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not _BOOTED.is_dir():
        return None
    which = ("--user",) if of_user else ()
    command = [systemctl, *which, "show", "--no-pager", f"--property={_PROPERTIES}"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [*command, SERVICE, SOCKET],
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Units(of_user, {}, f"it did not answer within {seconds:g} s")
    if done.returncode:
        told = done.stderr.strip().splitlines()
        return Units(of_user, {}, told[0] if told else f"exit status {done.returncode}")
    return Units(of_user, read_properties(done.stdout))


def read_properties(told: str) -> dict[str, dict[str, str]]:
    """Return the properties of each unit, by its name, that `systemctl show` tells."""
    units: dict[str, dict[str, str]] = {}
    for block in told.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in properties:
            units[properties["Id"]] = properties
    return units


def judge_units(units: Units) -> list[Finding]:
    """Return what is found of the units. Those that are not installed are none too few."""
    if units.fault is not None:
        whose = "the user's systemd" if units.of_user else "systemd"
        return [note(f"{whose} cannot be asked", units.fault)]
    return [
        finding
        for name in (SOCKET, SERVICE)
        if (properties := units.properties.get(name)) is not None
        for finding in _judge(name, properties, of_user=units.of_user)
    ]


def drop_in(setting: str, value: str) -> tuple[str, ...]:
    """Return the commands that give the host's service a setting, and start it again with it."""
    folder = f"/etc/systemd/system/{SERVICE}.d"
    line = in_shell(f"{setting}={value}")
    return (
        f"sudo mkdir -p {folder}",
        f"printf '[Service]\\n%s\\n' {line} | sudo tee {folder}/{setting.lower()}.conf",
        f"sudo systemctl daemon-reload && sudo systemctl restart {SERVICE}",
    )


def _judge(name: str, properties: Mapping[str, str], *, of_user: bool) -> Sequence[Finding]:
    load, active = properties.get("LoadState"), properties.get("ActiveState", "unknown")
    if load == "not-found":
        return ()
    sub, result = properties.get("SubState", "unknown"), properties.get("Result", "success")
    what = f"{'user unit' if of_user else 'unit'} {name}"
    state = f"{active} ({sub})"
    systemctl = "systemctl --user" if of_user else "sudo systemctl"
    journal = f"{'journalctl --user' if of_user else 'sudo journalctl'} -n 50 -u {name}"
    if load != "loaded":
        fragment = properties.get("FragmentPath") or "its file"
        return (wrong(what, f"it is {load}: see {fragment}", f"{systemctl} cat {name}"),)
    if active == "failed" or result != "success" or sub == "auto-restart":
        why = f"it is {state}, and its last run ended with {result}"
        again = f"{systemctl} restart {SOCKET} {SERVICE}"
        return (wrong(what, why, "see why, mend it, and start it again:", journal, again),)
    if active != "active":
        start = f"{systemctl} enable --now {SOCKET} {SERVICE}"
        return (note(what, f"it is {state}", start),)
    restarts = properties.get("NRestarts", "0")
    if restarts not in ("", "0"):
        return (note(what, f"{state}, but it was started again {restarts} times", journal),)
    return (ok(what, state),)
