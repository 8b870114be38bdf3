"""What list and explain advise, followed word for word in a shell: afterwards the card serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.dropping import Host, Json, write
from tests.system.running import environment, until

LLAMA: Json = {
    "display_name": "llama",
    "source_path": "/m",
    "url": "http://127.0.0.1:8001",
    "context_length": 32768,
}
SMALLER = LLAMA | {"url": "http://127.0.0.1:8002", "context_length": 8192}


class Person:
    """Somebody with a shell, who copies commands."""

    def __init__(self, host: Host, home: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        where = {"DISCOVERYD_SOCKET": str(host.daemon.socket), "HOME": str(home), "PATH": path}
        self._environ = environment(**where)

    def types(self, command: str) -> list[str]:
        """Run a command as it stands; return what it printed."""
        done = subprocess.run(
            ["bash", "-c", command],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout.splitlines()

    def advice_on(self, file: Path) -> list[list[str]]:
        """Return the ways out that explain tells, each as its commands."""
        ways: list[list[str]] = []
        for line in self.types(f"discoveryctl explain '{file}'"):
            if line.startswith(("  mend:", "  or:")):
                ways.append([])
            elif line.startswith(" " * 14):
                ways[-1].append(line.strip())
        return ways


@pytest.fixture
def person(host: Host, tmp_path: Path) -> Person:
    return Person(host, tmp_path)


def serves(host: Host, file: Path) -> bool:
    return host.verdict_of(file).good


def test_who_stands_by_is_in_the_list_and_takes_over_as_advised(host: Host, person: Person) -> None:
    host.put("1", LLAMA)
    assert host.put("2", SMALLER).standing == "standby"
    assert person.types("discoveryctl list")[1].endswith(
        "  llama  1 serving, 1 standing by: context 8192, not 32768"
    )
    beside, instead = person.advice_on(host.cards / "2.json")
    assert beside == [f"discoveryctl sync {host.cards}/2.json"]
    for command in instead:
        person.types(command)
    assert serves(host, host.cards / "2.json")
    assert host.standings() == {"2.json": "serving"}


def test_a_refused_card_is_in_the_list_and_an_edit_settles_it(host: Host, person: Person) -> None:
    host.put("1", LLAMA)
    host.put("2", SMALLER | {"display_name": "next", "aliases": ["llama"]})
    assert person.types("discoveryctl list")[3:5] == [
        "NOT SERVED  CARDS      FILE",
        f"next        1 refused  {host.cards}/2.json",
    ]
    ((verify,),) = person.advice_on(host.cards / "2.json")
    write(host.cards / "2.json", SMALLER | {"display_name": "next"})
    assert person.types(verify)[0] == f"{host.cards}/2.json: serving"


def test_a_link_is_replaced_as_advised(host: Host, person: Person, tmp_path: Path) -> None:
    write(tmp_path / "card", LLAMA)
    link = host.cards / "it's a link.json"
    link.symlink_to(tmp_path / "card")
    host.client.sync()
    ((copy,),) = person.advice_on(Path(str(link).replace("'", "'\\''")))
    person.types(copy)
    assert serves(host, link)


def test_what_is_no_file_is_moved_as_advised(host: Host, person: Person, tmp_path: Path) -> None:
    odd = host.cards / "odd.json"
    odd.mkdir()
    host.client.sync()
    ((move,),) = person.advice_on(odd)
    person.types(move)
    assert (tmp_path / "odd.json").is_dir()
    host.sync_gone(odd)


def test_a_lease_is_renewed_as_advised_or_its_card_withdrawn(host: Host, person: Person) -> None:
    file = host.cards / "leased.json"
    host.put("leased", LLAMA | {"liveness": {"lease_seconds": 1}})
    until(lambda: host.verdict_of(file).standing == "expired", "that the lease has run out")
    (renew,), (withdraw,) = person.advice_on(file)

    def serves_once_renewed() -> bool:
        person.types(renew)
        return serves(host, file)

    until(serves_once_renewed, "that it is renewed")
    person.types(withdraw)
    assert not file.exists()
