"""The units of one user, installed as the README says, without root and with lingering."""

import json

import pytest

from tests.system.running import until
from tests.systemd.conftest import FOR_ONE_USER, in_clone
from tests.systemd.host import PATIENCE, Host

pytestmark = pytest.mark.timeout(PATIENCE)

USER = "dora"
CTL = "~/.local/bin/discoveryctl"


@pytest.fixture(scope="module")
def own(installed: Host) -> Host:
    """Give a host with a user who has installed the daemon for himself."""
    installed.must(f"useradd --create-home {USER} && loginctl enable-linger {USER}")
    reached = f"test -S /run/user/$(id -u {USER})/systemd/private"
    until(lambda: installed.run(reached).status == 0, "the user's own systemd", 60.0)
    in_clone(installed.box, FOR_ONE_USER, user=USER)
    return installed


def test_systemd_has_nothing_to_say_against_the_user_units(own: Host) -> None:
    done = own.run(
        "systemd-analyze --user verify --man=no ~/.config/systemd/user/discoveryd.*", user=USER
    )
    assert done == (0, "", "")


def test_a_user_serves_his_own_workers(own: Host) -> None:
    cards = "$XDG_RUNTIME_DIR/discoveryd/cards"
    card = json.dumps({"display_name": "mine", "url": "http://127.0.0.1:7"})
    own.must(f"echo '{card}' > {cards}/m.json && {CTL} sync m.json", user=USER)
    assert own.must(f"{CTL} resolve mine --url", user=USER).split() == ["http://127.0.0.1:7"]
    own.must("systemctl --user restart discoveryd.service", user=USER)
    assert own.must(f"{CTL} resolve mine --url", user=USER).split() == ["http://127.0.0.1:7"]


def test_a_users_configuration_is_in_his_home(own: Host) -> None:
    aliases = '[aliases]\n"boss" = "own"\n'
    own.must(f"printf '{aliases}' > ~/.config/discoveryd/config.toml", user=USER)
    card = json.dumps({"display_name": "own", "url": "http://127.0.0.1:8"})
    own.must(f"echo '{card}' > $XDG_RUNTIME_DIR/discoveryd/cards/o.json", user=USER)
    own.must("systemctl --user reload discoveryd.service", user=USER)
    assert own.must(f"{CTL} resolve boss --url", user=USER).split() == ["http://127.0.0.1:8"]


def test_nobody_else_can_ask_a_users_daemon(own: Host) -> None:
    socket = own.must("echo $XDG_RUNTIME_DIR/discoveryd/io.discoveryd.Models", user=USER).strip()
    assert own.must(f"stat -c '%a %U' {socket}") == f"600 {USER}\n"
