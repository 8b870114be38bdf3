"""The pages of the reference: which there are, in a line each, and where they lie.

A page is a Markdown file beside the code that it describes, and comes with the package. Here they
are only found and read; what is generated is added, and all is shown, by commands/help.py. A page
of the daemon's is text like any other: nothing of the daemon is imported.
"""

from typing import Final, NamedTuple


class Page(NamedTuple):
    """Where a page lies, below the package, and what it is about, in a line."""

    file: str
    summary: str


PAGES: Final = {
    "cards": Page("core/parsing/cards.md", "what a card says, member by member"),
    "standings": Page("core/standings.md", "why a card serves or waits, and every rule"),
    "liveness": Page("daemon/life/liveness.md", "how a card goes with its worker"),
    "workers": Page("client/workers/workers.md", "workers in Python, which publish themselves"),
    "run": Page("client/running/run.md", "a worker's command, started, published and followed"),
    "adopt": Page("client/adopting/adopt.md", "servers that know nothing of discoveryd"),
    "containers": Page("client/doctor/containers.md", "workers, or the daemon, in containers"),
    "dynamo": Page("core/dynamo.md", "Dynamo stores, and where verdicts differ from Dynamo's"),
    "commands": Page("client/ctl/commands.md", "every command of discoveryctl, and its options"),
    "python": Page("client/python.md", "asking, and keeping a copy, from Python"),
    "interface": Page("interface.md", "the socket, and the definition of its interface"),
    "http": Page("daemon/http/http.md", "models, health, metrics and targets, for reading"),
    "export": Page("client/exporting/export.md", "files for LiteLLM, nginx and Prometheus"),
    "configuration": Page(
        "daemon/configuration/configuration.md", "the daemon's flags and file, and reloading"
    ),
    "security": Page("daemon/permit/security.md", "who may claim what on a shared host"),
    "service": Page("daemon/systemd/service.md", "the daemon, and workers, under systemd"),
    "restarts": Page("daemon/ledger/restarts.md", "what outlives the daemon, and where it is kept"),
    "testing": Page("client/testing/testing.md", "real daemons in tests: the pytest plugin"),
}
"""Every page, by its topic, in the order in which people are told of them."""

INTERFACE: Final = "io.discoveryd.Models.varlink"
"""The definition of the interface, below the package: a reference by itself."""


def read(file: str) -> str:
    """Return the text of a file that comes with the package; `file` is its path below that."""
    from importlib.resources import files  # noqa: PLC0415 - completion has no use for it

    return files("discoveryd").joinpath(file).read_text(encoding="utf-8")
