"""The daemon as a service, installed, started, upgraded and removed as the README says."""

import re

import pytest

from tests.system.running import until
from tests.systemd.conftest import REMOVE, UPGRADE, in_clone
from tests.systemd.host import CARDS, PATIENCE, SOCKET, UNITS, Host

pytestmark = pytest.mark.timeout(PATIENCE)

REGISTRY = "/run/varlink/registry/io.discoveryd.Models"
MOST_EXPOSED = 10
"""In tenths of a point, as the option wants them."""


def test_systemd_has_nothing_to_say_against_the_units(host: Host) -> None:
    units = "/etc/systemd/system/discoveryd.* /clone/systemd/examples/*.service"
    stub = (
        "printf '#!/bin/sh\n' > /usr/local/bin/llama-server; chmod +x /usr/local/bin/llama-server"
    )
    done = host.run(f"{stub}; systemd-analyze verify --man=no {units}")
    assert done == (0, "", "")


def test_systemd_has_nothing_to_say_against_the_fragments(host: Host) -> None:
    done = host.run(
        "systemd-sysusers --dry-run discoveryd.conf && systemd-tmpfiles --create discoveryd.conf"
    )
    assert done == (0, "", "")


@pytest.mark.parametrize("drop_in", ["systemd-252.conf", "dynamo-store.conf"])
def test_systemd_has_nothing_to_say_against_a_drop_in(host: Host, drop_in: str) -> None:
    host.drop_in("discoveryd.service", host.must(f"cat /clone/systemd/drop-ins/{drop_in}"))
    done = host.run("systemd-analyze verify --man=no discoveryd.service")
    assert done == (0, "", "")
    host.must("systemctl restart discoveryd.service && systemctl reload discoveryd.service")


def test_little_of_the_host_is_exposed_to_the_daemon(host: Host) -> None:
    host.must(
        "systemd-analyze security --no-pager --offline=true"
        f" --threshold={MOST_EXPOSED} /etc/systemd/system/discoveryd.service"
    )


def test_the_daemon_has_answers_as_soon_as_systemctl_start_returns(host: Host) -> None:
    host.must("systemctl stop discoveryd.service")
    for number in range(1, 21):
        host.put(f"{number}.json", display_name=f"m{number}", url=f"http://127.0.0.1:{number}")
    told = host.must(
        "systemctl start discoveryd.service && systemctl show -P StatusText discoveryd"
    )
    assert re.fullmatch(r"20 workers, 20 models, revision \d+\n", told)
    assert host.urls("m20") == ["http://127.0.0.1:20"]


def test_the_status_line_is_kept_true(host: Host) -> None:
    host.put("m.json", display_name="m", aliases=["other"])
    host.put("n.json", display_name="n", source_path="/n", aliases=["m"])

    def told() -> bool:
        return bool(
            re.match(r"1 worker, 1 model, 1 blocked, revision \d+$", host.show("StatusText")[0])
        )

    until(told, "a status line that tells of both cards")


def test_who_asks_before_anything_runs_is_answered(host: Host) -> None:
    host.must(f"systemctl stop {UNITS}")
    host.put("m.json", display_name="m", url="http://127.0.0.1:1")
    host.must("systemctl start discoveryd.socket")
    assert host.pid() == 0
    assert host.urls("m") == ["http://127.0.0.1:1"]
    assert host.pid() != 0


def test_the_interface_is_linked_where_systemd_looks_for_services(host: Host) -> None:
    assert host.must(f"readlink {REGISTRY}").strip() == SOCKET
    assert "interface io.discoveryd.Models" in host.must(
        f"varlinkctl introspect {REGISTRY} io.discoveryd.Models"
    )
    host.must(f"systemctl stop {UNITS}")
    assert host.run(f"test -e {REGISTRY} -o -L {REGISTRY} -o -e {SOCKET}").status == 1


def test_stopping_everything_leaves_the_cards(host: Host) -> None:
    host.put("m.json", display_name="m", url="http://127.0.0.1:1")
    host.must(f"systemctl stop {UNITS}")
    assert host.must(f"ls {CARDS}").split() == ["m.json"]
    host.must(f"systemctl start {UNITS}")
    assert host.urls("m") == ["http://127.0.0.1:1"]


def test_what_was_installed_is_upgraded_and_removed(another: Host) -> None:
    another.put("m.json", display_name="m", url="http://127.0.0.1:1")
    before = another.pid()
    in_clone(another.box, UPGRADE)
    assert another.pid() not in (0, before)
    assert another.urls("m") == ["http://127.0.0.1:1"]
    in_clone(another.box, REMOVE)
    left = another.must(
        "find / -xdev -name '*discoveryd*' -not -path '/root/*' -not -path '/proc/*'"
        " -not -path '/home/*'; find /run /etc -name '*discoveryd*'"
    )
    assert left.split() == []
    assert another.run("getent passwd discoveryd; getent group discoveryd discoveryd-workers") == (
        2,
        "",
        "",
    )
