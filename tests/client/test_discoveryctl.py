"""What the commands of discoveryctl share: options, failures, help; nothing steers the terminal."""

import pytest

from discoveryd import __version__
from discoveryd.client.ctl.session import NO, NO_DAEMON, TIMED_OUT
from tests.client import fakes
from tests.client.ctl import EVIL, USAGE, Ctl
from tests.client.fakes import FakeDaemon


class TestOptions:
    @pytest.mark.parametrize(
        "args", [("--json", "resolve", "x"), ("resolve", "--json", "x"), ("resolve", "x", "--json")]
    )
    def test_json_is_taken_anywhere(
        self, daemon: FakeDaemon, ctl: Ctl, args: tuple[str, ...]
    ) -> None:
        daemon.answer("Resolve", fakes.resolution())
        assert ctl(*args).json() == fakes.resolution()

    def test_the_socket_is_taken_before_and_after_and_wins(
        self, daemon: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DISCOVERYD_SOCKET", "/nowhere")
        daemon.answer("Resolve", fakes.resolution())
        assert ctl("--socket", daemon.path, "resolve", "x").status == 0
        assert ctl("resolve", "x", "--socket", daemon.path).status == 0
        assert ctl("--socket", "/nowhere", "resolve", "x", "--socket", daemon.path).status == 0

    def test_a_silent_daemon_is_given_the_timeout(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.scripts = [fakes.stay_silent]
        found = ctl("--timeout", "0.05", "resolve", "x")
        assert found.status == TIMED_OUT
        assert found.err.splitlines() == [
            f"discoveryctl: {daemon.path} did not answer in time",
            "Give it more time with --timeout, or see whether it is stuck.",
        ]

    @pytest.mark.parametrize("timeout", ["0", "-1", "x", "nan"])
    def test_a_timeout_that_is_none_is_wrong_usage(self, ctl: Ctl, timeout: str) -> None:
        assert ctl("list", "--timeout", timeout).status == USAGE

    @pytest.mark.parametrize("timeout", ["inf", "1e30"])
    def test_a_timeout_longer_than_the_kernel_knows_is_a_long_one(
        self, daemon: FakeDaemon, ctl: Ctl, timeout: str
    ) -> None:
        daemon.answer("Resolve", fakes.resolution())
        assert ctl("resolve", "x", "--timeout", timeout).status == 0

    @pytest.mark.parametrize("command", ["resolve", "wait", "drain"])
    def test_an_empty_name_is_wrong_usage(self, ctl: Ctl, command: str) -> None:
        found = ctl(command, "")
        assert found.status == USAGE
        assert "is empty" in found.err

    def test_an_empty_path_of_a_socket_is_said_to_be_one(self, ctl: Ctl) -> None:
        found = ctl("list", "--socket", "")
        assert found.status == NO_DAEMON
        assert "(as you said): the path is empty" in found.err

    def test_no_daemon_says_what_was_tried_and_what_to_do(self, ctl: Ctl) -> None:
        names = "--socket or DISCOVERYD_SOCKET"
        found = ctl("list", "--socket", "/nowhere/at/all")
        assert (found.status, found.out) == (NO_DAEMON, "")
        assert found.err.splitlines() == [
            "discoveryctl: no discoveryd answers; tried:",
            "  /nowhere/at/all (as you said): there is no such socket",
            f"Start one with discoveryd serve, or name its socket with {names}.",
        ]

    def test_what_is_no_discoveryd_is_no_daemon(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("List", {"names": 1})
        assert ctl("list").status == NO_DAEMON

    def test_another_error_is_a_no(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("List", **fakes.failure("org.varlink.service.PermissionDenied"))
        found = ctl("list")
        assert found.status == NO
        assert (
            found.err == "discoveryctl: the daemon refused: org.varlink.service.PermissionDenied\n"
        )

    def test_version(self, ctl: Ctl) -> None:
        assert ctl("--version").out == f"discoveryctl {__version__}\n"

    @pytest.mark.parametrize("args", [("nonsense",), ("resolve",), ("list", "x"), ()])
    def test_wrong_usage(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        found = ctl(*args)
        assert (found.status, found.out) == (USAGE, "")
        assert "Usage: discoveryctl" in found.err

    def test_help_names_the_exit_statuses(self, ctl: Ctl) -> None:
        found = ctl("--help")
        assert found.status == 0
        assert "3 no daemon" in found.out


class TestNothingSteersTheTerminal:
    """Whatever a card or the daemon says comes out printable."""

    @pytest.fixture
    def evil(self, daemon: FakeDaemon) -> None:
        worker = fakes.worker(
            key=EVIL, file=EVIL, model=EVIL, aliases=[EVIL], url=EVIL, worker_type=EVIL
        )
        name = fakes.name(EVIL, kind=EVIL, model=EVIL)
        reason = {"rule": EVIL, "message": EVIL, "field": EVIL, "found": EVIL, "against": [EVIL]}
        members = {"key": EVIL, "names": [EVIL], "standing": EVIL, "serves": EVIL, "since": EVIL}
        verdict = fakes.verdict(EVIL, reasons=[reason], warnings=[EVIL], **members)
        directory = {**fakes.status()["directories"][0], "path": EVIL, "problem": EVIL}
        cursor = {"epoch": EVIL, "revision": 1}
        daemon.answer(
            "Resolve", fakes.resolution(name=EVIL, kind="alias", model=EVIL, workers=[worker])
        )
        daemon.answer("List", {"names": [name], "cursor": cursor})
        daemon.answer("ListWorkers", {"workers": [worker], "cursor": cursor})
        daemon.answer("Explain", {"verdicts": [verdict], "cursor": cursor})
        daemon.answer("Sync", {"verdicts": [], "standings": {EVIL: 1}, "cursor": cursor})
        daemon.answer(
            "GetStatus",
            fakes.status(
                version=EVIL,
                directories=[directory],
                standings={EVIL: 1},
                idle_cohorts=[EVIL],
                problems=[EVIL],
            ),
        )
        daemon.answer(
            "Watch",
            fakes.watched(
                cursor=cursor, changed=[worker], removed=[EVIL], names=[name], gone=[EVIL]
            ),
        )

    @pytest.mark.parametrize(
        "args",
        [
            ("resolve", "x"),
            ("resolve", "x", "--url"),
            ("list",),
            ("workers",),
            ("explain", "x"),
            ("sync",),
            ("status",),
            ("watch",),
        ],
    )
    @pytest.mark.usefixtures("evil")
    def test_in_text(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        found = ctl(*args)
        assert "\\u202egpt" in found.out
        assert all(line.isprintable() for line in (found.out + found.err).splitlines())

    @pytest.mark.usefixtures("evil")
    def test_in_json(self, ctl: Ctl) -> None:
        found = ctl("workers", "--json")
        assert found.out.rstrip("\n").isprintable()
        assert found.json()["workers"][0]["model"] == EVIL

    def test_in_json_beyond_the_basic_plane(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        tagged = "x\U000e0041"
        daemon.answer("Resolve", fakes.resolution(model=tagged))
        found = ctl("resolve", "x", "--json")
        assert found.out.rstrip("\n").isprintable()
        assert found.json()["model"] == tagged

    def test_in_errors(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        taught = fakes.no_such_model(EVIL, similar=[EVIL], waiting=[fakes.verdict(EVIL)])
        daemon.answer("Resolve", **taught)
        found = ctl("resolve", "x")
        assert all(line.isprintable() for line in found.err.splitlines())
