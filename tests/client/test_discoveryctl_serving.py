"""discoveryctl status and reload: the daemon itself."""

import pytest

from discoveryd.client.ctl.session import NO
from tests.client import fakes
from tests.client.ctl import EVIL, Ctl
from tests.client.fakes import FakeDaemon


class TestStatus:
    def test_prints_how_the_daemon_is(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status())
        found = ctl("status")
        assert found.status == 0
        assert found.out.splitlines() == [
            "discoveryd 0.1.0, up 1 h 2 min, healthy",
            "revision:    7 of epoch e1",
            "names:       2",
            "cards:       1 serving, 1 refused",
            "connections: 1, of them watching: 0",
            "DIRECTORY  LAYOUT  FILES  NOTICED  RESCAN  PROBLEM",
            "/cards     cards   2      native   5 s     -",
        ]

    def test_says_no_and_why_where_it_is_not_healthy(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status(healthy=False, problems=["blind"]))
        found = ctl("status")
        assert found.status == NO
        assert found.out.splitlines()[:2] == [
            "discoveryd 0.1.0, up 1 h 2 min, NOT healthy",
            "  problem: blind",
        ]

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(5.9, "5 s"), (61, "1 min 1 s"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")],
    )
    def test_uptime_in_its_greatest_units(
        self, daemon: FakeDaemon, ctl: Ctl, seconds: float, shown: str
    ) -> None:
        daemon.answer("GetStatus", fakes.status(uptime_seconds=seconds))
        assert f"up {shown}, healthy" in ctl("status").out

    def test_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status())
        assert ctl("status", "--json").json() == fakes.status()


class TestReload:
    def test_says_what_changed(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer(
            "Reload", {"changed": ["aliases: gpt-4o is new", "owner: uid"], "problems": []}
        )
        found = ctl("reload")
        assert (found.status, found.err) == (0, "")
        assert found.out.splitlines() == ["changed: aliases: gpt-4o is new", "changed: owner: uid"]
        assert daemon.asked() == [("Reload", {})]

    def test_says_that_nothing_changed(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Reload", {"changed": [], "problems": []})
        assert (ctl("reload").out, ctl("reload").status) == ("nothing changed\n", 0)

    def test_says_no_where_there_are_problems(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Reload", {"changed": [], "problems": ["line 3: no such key", EVIL]})
        found = ctl("reload")
        assert (found.status, found.out) == (NO, "nothing changed\n")
        first, second = found.err.splitlines()
        assert first == "discoveryctl: line 3: no such key"
        assert second.isprintable()

    def test_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reply = {"changed": ["x"], "problems": ["y"]}
        daemon.answer("Reload", reply)
        found = ctl("reload", "--json")
        assert (found.status, found.json()) == (NO, reply)

    def test_who_may_not_is_told_who_may_and_how(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Reload", **fakes.failure("org.varlink.service.PermissionDenied"))
        found = ctl("reload")
        assert (found.status, found.out) == (NO, "")
        assert found.err.splitlines() == [
            (
                "discoveryctl: only root and the daemon's own user may let it read its"
                " configuration again"
            ),
            f"Try: sudo discoveryctl reload --socket {daemon.path}",
        ]

    def test_another_error_is_told_as_it_is(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Reload", **fakes.failure("org.varlink.service.MethodNotFound", method="x"))
        found = ctl("reload")
        assert found.status == NO
        assert "org.varlink.service.MethodNotFound" in found.err
