"""systemctl reload, with a configuration that is good and with one that is not."""

import pytest

from tests.system.running import until
from tests.systemd.host import ASKER, PATIENCE, Host

pytestmark = pytest.mark.timeout(PATIENCE)

GOOD = '[aliases]\n"boss" = "m"\n'
BROKEN = "aliases = [\n"
URL = "http://127.0.0.1:1"


@pytest.fixture
def served(host: Host) -> Host:
    """Give the host with one worker of `m`."""
    host.put("m.json", display_name="m", url=URL)
    host.ask("sync m.json")
    return host


def test_a_good_configuration_counts_when_systemctl_reload_returns(served: Host) -> None:
    pid = served.pid()
    served.configure(GOOD)
    served.must("systemctl reload discoveryd.service")
    assert served.urls("boss") == [URL]
    assert served.pid() == pid


def test_a_broken_configuration_changes_nothing_and_is_told(served: Host) -> None:
    pid = served.pid()
    served.configure(GOOD)
    served.must("systemctl reload discoveryd.service")
    served.configure(BROKEN)
    served.must("systemctl reload discoveryd.service")
    assert served.show("ActiveState", "SubState") == ["active", "running"]
    assert served.pid() == pid
    assert served.urls("boss") == [URL]
    (problem,) = served.ask("status")["problems"]
    assert "config.toml" in problem
    assert "config.toml" in served.log()
    served.configure(GOOD)
    served.must("systemctl reload discoveryd.service")
    assert served.ask("status")["problems"] == []


def test_only_root_and_the_daemon_may_have_it_reloaded(served: Host) -> None:
    denied = served.call("Reload", {}, user=ASKER)
    assert denied.status != 0
    assert "PermissionDenied" in denied.errors + denied.output
    served.configure(GOOD)
    assert served.call("Reload", {}).status == 0
    assert served.urls("boss") == [URL]


def test_a_daemon_that_cannot_start_comes_once_its_configuration_is_mended(served: Host) -> None:
    served.configure(BROKEN)
    assert served.run("systemctl restart discoveryd.service").status != 0
    assert "config.toml" in served.log()
    served.configure(GOOD)
    assert served.urls("boss") == [URL]
    until(lambda: served.show("ActiveState") == ["active"], "an active service")
