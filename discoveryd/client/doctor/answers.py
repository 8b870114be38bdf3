"""What the daemon says of itself: its version, how it is, and what to do about each problem.

The daemon's problems are sentences that say what to do. Here stands the command for it, told by a
phrase of the sentence; a test holds that the daemon says each of these phrases.
"""

from collections.abc import Callable, Iterator

from discoveryd import __version__
from discoveryd.client.ctl.mending import in_shell
from discoveryd.client.ctl.show import duration, standings
from discoveryd.client.doctor.findings import Finding, note, ok, wrong
from discoveryd.client.doctor.units import drop_in
from discoveryd.interface import Directory, Status

_RELOAD = "sudo discoveryctl reload"
_RESTART = "sudo systemctl restart discoveryd.socket discoveryd.service"


def judge_status(status: Status, version: str = __version__) -> list[Finding]:
    """Return what the daemon says of itself; `version` is this program's own."""
    cards = standings(status.standings)
    uptime = duration(status.uptime_seconds)
    findings = [ok(f"discoveryd {status.version}, up {uptime}", f"cards: {cards}")]
    if status.version != version:
        findings.append(
            note(
                "the versions differ",
                f"the daemon is {status.version}, this discoveryctl {version}",
                "install one version for both, then restart the daemon:",
                "sudo systemctl restart discoveryd.service",
            )
        )
    findings += [_judge_problem(problem, status.directories) for problem in status.problems]
    findings += _judge_directories(status.directories)
    waiting = sum(count for standing, count in status.standings.items() if standing != "serving")
    if waiting:
        findings.append(
            note("some cards do not serve", cards, "see which and why:", "discoveryctl explain")
        )
    return findings


def _judge_problem(problem: str, directories: tuple[Directory, ...]) -> Finding:
    """Return a problem with the command that goes with it; `directories` are the daemon's."""
    for phrase, remedy in REMEDIES.items():
        if phrase in problem:
            named = [each.path for each in directories if each.problem and each.problem in problem]
            return wrong("the daemon has a problem", problem, *remedy(named))
    return wrong("the daemon has a problem", problem)


def _judge_directories(directories: tuple[Directory, ...]) -> Iterator[Finding]:
    for each in directories:
        if each.problem is None and not each.watching:
            yield note(
                f"{each.path} is looked at every {each.rescan_seconds:g} s only",
                "its file system tells nothing of changes, so answers are as much behind",
                "where that is too late, choose a directory on a local file system (--cards)",
            )


def _for_each(*commands: str) -> Callable[[list[str]], tuple[str, ...]]:
    """Return a remedy of commands in which {} stands for each directory that has the problem."""

    def remedy(directories: list[str]) -> tuple[str, ...]:
        return tuple(
            command.format(in_shell(directory)) for directory in directories for command in commands
        )

    return remedy


def _just(*lines: str) -> Callable[[list[str]], tuple[str, ...]]:
    return lambda _: lines


REMEDIES: dict[str, Callable[[list[str]], tuple[str, ...]]] = {
    "fs.inotify.": _just(
        "sudo sysctl -w fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024",
        "and write both into a file in /etc/sysctl.d, so that they stay",
    ),
    "everybody can remove or replace": _for_each("sudo chmod +t {}"),
    "it does not exist": _for_each("sudo install -d -m 1777 {}"),
    "something else is there": _for_each("ls -ld {}"),
    "cannot be listed": _for_each("sudo chmod a+rx {}"),
    "(PrivateTmp=)": _just(*drop_in("PrivateTmp", "no")),
    "the ledger is not kept": _just(
        "when that is mended the daemon writes it again by itself; see whether it does:",
        "discoveryctl status",
    ),
    "A new ledger was begun": _just("see what waited:", "discoveryctl explain"),
    "the configuration was not taken over": _just("correct it, then:", _RELOAD),
    "clients cannot connect any more": _just(_RESTART),
    "(LimitNOFILE)": _just(*drop_in("LimitNOFILE", "524288")),
    "See whether its file system still answers": _for_each("findmnt --target {}", "ls {}"),
}
"""By a phrase of the problem, what mends it; given the directories that have the problem."""
