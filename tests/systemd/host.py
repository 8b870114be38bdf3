"""A box in which the daemon is a service: what its users and its operator do there."""

import json
import shlex
from typing import Any

from tests.systemd.box import Box, Done

CARDS = "/run/discoveryd/cards"
SOCKET = "/run/discoveryd/io.discoveryd.Models"
CONFIGURATION = "/etc/discoveryd/config.toml"
WORKER = "ann"
"""A user in the group of the workers; `ben` is another."""
OTHER_WORKER = "ben"
ASKER = "carol"
"""A user in no group."""
UNITS = "discoveryd.socket discoveryd.service"
PATIENCE = 900
"""Seconds for a test, since the first one waits until a box is built."""
BESIDE = "/opt/discoveryd/bin/python /inside/asking.py"

Json = dict[str, Any]


class Host:
    """The operator's and the users' hands in a box."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.must = box.must
        self.run = box.run

    def show(self, *properties: str, unit: str = "discoveryd.service") -> list[str]:
        """Return properties of a unit, as systemd tells them."""
        found = self.must(f"systemctl show {unit} {' '.join(f'-p {each}' for each in properties)}")
        told = dict(line.split("=", 1) for line in found.splitlines())
        return [told[each] for each in properties]

    def pid(self) -> int:
        """Return the daemon's process, 0 where there is none."""
        return int(self.show("MainPID")[0])

    def put(self, file: str, *, user: str = WORKER, **members: object) -> None:
        """Drop a card as a worker does: beside its place, then renamed."""
        text = shlex.quote(json.dumps(members))
        place = f"{CARDS}/{file}"
        self.must(f"umask 022; printf %s {text} > {place}.new && mv {place}.new {place}", user=user)

    def ask(self, command: str, *, user: str = ASKER) -> Json:
        """Return what a command of discoveryctl prints as JSON, whatever its status."""
        answer: Json = json.loads(self.run(f"discoveryctl {command} --json", user=user).output)
        return answer

    def urls(self, name: str, *, user: str = ASKER) -> list[str]:
        """Return where a name is served, for a user who asks once; nothing if it is not."""
        done = self.run(f"discoveryctl resolve {name} --url", user=user)
        assert done.status in (0, 1), done
        return done.output.split()

    def call(self, method: str, parameters: Json, *, user: str | None = None) -> Done:
        """Call a method by systemd's own client."""
        told = shlex.quote(json.dumps(parameters))
        return self.run(
            f"varlinkctl --json=short call {SOCKET} io.discoveryd.Models.{method} {told}", user=user
        )

    def configure(self, text: str) -> None:
        """Write the configuration file."""
        self.must(f"mkdir -p /etc/discoveryd && printf %s {shlex.quote(text)} > {CONFIGURATION}")

    def log(self, unit: str = "discoveryd.service") -> str:
        """Return everything that the unit has logged."""
        return self.must(f"journalctl --sync; journalctl --unit={unit} --output=cat --no-pager")

    def drop_in(self, unit: str, text: str) -> None:
        """Put a drop-in beside those that are there; it goes with `clean`."""
        directory = f"/run/systemd/system/{unit}.d"
        self.must(
            f"mkdir -p {directory} && printf %s {shlex.quote(text)} > {directory}/test.conf"
            " && systemctl daemon-reload"
        )

    def clean(self) -> None:
        """Leave no cards, configuration or drop-ins, and a daemon that runs as it was installed."""
        self.must(
            f"rm -rf {CARDS}/* {CONFIGURATION} /run/systemd/system/*.d"
            f" && systemctl daemon-reload && systemctl restart {UNITS}"
        )
        assert self.show("ActiveState", "SubState") == ["active", "running"]
