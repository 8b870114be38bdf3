"""discoveryctl: asks the daemon, prints the answer, and says yes or no by its exit status.

Here stand which commands there are, each with its short help. They live in commands/, their words
in show.py, listing.py and advice.py, what failures mean in failures.py. It starts fast: what only
some commands need is imported when they run.
"""

import os
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from discoveryd import __version__
from discoveryd.client.ctl.group import Commands, Row
from discoveryd.client.ctl.session import INTERRUPTED, PROGRAM, Session, shared_options

_EXIT_STATUS = (
    "Exit status: 0 yes; 1 no (no such model, not ready, refused, invalid); 2 wrong usage; "
    "3 no daemon; 4 timed out."
)

_AT = "discoveryd.client.ctl.commands"

COMMANDS: Final = {
    "resolve": Row(f"{_AT}.asking:resolve", "Say which workers serve NAME."),
    "list": Row(f"{_AT}.asking:list_names", "List every served name."),
    "workers": Row(f"{_AT}.asking:workers", "List every served worker, draining ones included."),
    "explain": Row(f"{_AT}.judging:explain", "Say why a card has its standing."),
    "check": Row(f"{_AT}.judging:check", "Judge card files before they are dropped."),
    "history": Row(f"{_AT}.judging:history", "Say what became of cards, the latest first."),
    "sync": Row(f"{_AT}.following:sync", "Wait until what is on disk now has been applied."),
    "watch": Row(f"{_AT}.following:watch", "Print the present state, then every change."),
    "top": Row(f"{_AT}.top:top", "Show models, workers and what waits, as they change."),
    "wait": Row(f"{_AT}.following:wait", "Wait until NAME is served and ready."),
    "publish": Row(f"{_AT}.publish:publish", "Put a card FILE into the drop directory."),
    "withdraw": Row(f"{_AT}.publish:withdraw", "Remove a card from the drop directory."),
    "drain": Row(f"{_AT}.publish:drain", "Take workers out of the answers, but keep their names."),
    "undrain": Row(f"{_AT}.publish:undrain", "Let workers that drain take new requests again."),
    "run": Row(f"{_AT}.run:run", "Run a worker's COMMAND, and keep its card as long as it lives."),
    "adopt": Row(f"{_AT}.adopt:adopt", "Register servers that run already, by their listings."),
    "export": Row(f"{_AT}.export:export", "Write what is served in the FORMAT of a router."),
    "status": Row(f"{_AT}.serving:status", "Say how the daemon is."),
    "doctor": Row(f"{_AT}.doctor:doctor", "Examine why things do not work."),
    "reload": Row(f"{_AT}.serving:reload", "Let the daemon read its configuration again."),
    "schema": Row(f"{_AT}.editing:schema", "Print the card's JSON Schema."),
    "completion": Row(
        f"{_AT}.editing:completion", "Print what makes a shell complete commands, names and files."
    ),
    "help": Row(f"{_AT}.help:show_page", "Show a page of the reference."),
}
"""Every command, in the order of --help. The summary is the first sentence of its own help."""


def main() -> NoReturn:
    """Be the program discoveryctl."""
    status = run()
    # Taking the interpreter apart would take longer than asking: 10 ms. All output is flushed.
    os._exit(status)


def run(args: Sequence[str] | None = None) -> int:
    """Run discoveryctl with `args` (those of the process by default); return its exit status."""
    session = Session()
    try:
        status = command.main(args, prog_name=PROGRAM, standalone_mode=False, obj=session)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        from discoveryd.client.ctl.failures import tell  # noqa: PLC0415 - what succeeds has no use for it

        failed = tell(session, error)
        if failed is None:
            raise
        return failed
    return status if isinstance(status, int) else 0


@click.group(
    cls=Commands,
    rows=COMMANDS,
    epilog=_EXIT_STATUS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@shared_options
def command() -> None:
    """Ask discoveryd which workers on this host serve a model name, and if none, why not."""
