"""discoveryctl: asks the daemon, prints the answer, and says yes or no by its exit status.

Here stand the commands and what their failures mean for the exit status; the words are in show.py
and advice.py. It starts fast: what only some commands need is imported when they run.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Final, NoReturn

import click

from discoveryd import __version__
from discoveryd.client import show
from discoveryd.client.errors import (
    CallRefused,
    ConnectionLost,
    DiscoverydError,
    NoDaemon,
    NoSuchFile,
    NoSuchModel,
    Timeout,
)
from discoveryd.client.session import PROGRAM, Session, complain, pass_session, shared_options
from discoveryd.core.text import printable
from discoveryd.interface import Cursor

NO: Final = 1
NO_DAEMON: Final = 3
TIMED_OUT: Final = 4
INTERRUPTED: Final = 130

_EXIT_STATUS = (
    "Exit status: 0 yes; 1 no (no such model, not ready, refused, invalid); 2 wrong usage; "
    "3 no daemon; 4 timed out."
)


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
    except DiscoverydError as error:
        return _failed(session, error)
    return status if isinstance(status, int) else 0


def _failed(session: Session, error: DiscoverydError) -> int:
    """Say what went wrong and what to do about it; return the exit status."""
    match error:
        case NoDaemon():
            where = "name its socket with --socket or DISCOVERYD_SOCKET"
            complain(*error.lines, f"Start one with discoveryd serve, or {where}.")
            return NO_DAEMON
        case Timeout():
            complain(str(error), "Give it more time with --timeout, or see whether it is stuck.")
            return TIMED_OUT
        case CallRefused():
            if session.json:
                session.show_json({"error": error.name, "parameters": error.parameters})
            complain(str(error), *_advice(error))
            return NO
        case ConnectionLost():
            complain(str(error), "It was stopped or restarted: try again.")
            return NO_DAEMON
        case _:
            complain(str(error), "Another program, or another version of it, may listen there.")
            return NO_DAEMON


def _advice(error: CallRefused) -> list[str]:
    match error:
        case NoSuchModel():
            from discoveryd.client.advice import nobody_serves  # noqa: PLC0415 - when it is needed

            return nobody_serves(error)
        case NoSuchFile():
            return [
                "Card files end in .json, do not begin with a dot, and lie in one of the",
                "directories that status lists.",
            ]
        case _:
            return []


def _text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a name that is no text: the daemon has none such."""
    del context
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not UTF-8", param=parameter) from None
    return value


def _cursor(context: click.Context, parameter: click.Parameter, value: str | None) -> Cursor | None:
    del context
    if value is None:
        return None
    epoch, colon, revision = value.rpartition(":")
    if not colon or not revision.isdecimal():
        raise click.BadParameter("must be EPOCH:REVISION, as watch prints it", param=parameter)
    return Cursor(epoch, int(revision))


@click.group(epilog=_EXIT_STATUS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@shared_options
def command() -> None:
    """Ask discoveryd which workers on this host serve a model name, and if none, why not."""


@command.command()
@click.argument("name", callback=_text)
@click.option("--url", is_flag=True, help="Print the workers' URLs only, one a line.")
@shared_options
@pass_session
def resolve(session: Session, name: str, url: bool) -> int:
    """Say which workers serve NAME.

    Workers that drain are left out. Exit status 1 if nobody serves the name, or if it is not ready.
    """
    if url and session.json:
        raise click.UsageError("--url and --json exclude each other.")
    with session.client() as client:
        answer = client.resolve(name)
    if session.json:
        session.show_json(answer)
    elif url:
        session.show(printable(worker.url) for worker in answer.workers if worker.url is not None)
    else:
        session.show(show.resolution(answer, session.limit()))
    if not answer.ready:
        complain(show.why_not_ready(answer))
        return NO
    if url and not any(worker.url for worker in answer.workers):
        complain(f"no card of {name} gives a URL")
        return NO
    return 0


@command.command("list")
@shared_options
@pass_session
def list_names(session: Session) -> None:
    """List every served name."""
    with session.client() as client:
        served = client.list()
    if session.json:
        session.show_json(served)
    else:
        session.show(show.names(served.names, session.limit()))


@command.command()
@click.option("--name", metavar="NAME", callback=_text, help="Only those that answer this name.")
@click.option("--namespace", metavar="NAMESPACE", callback=_text, help="Only those in it.")
@shared_options
@pass_session
def workers(session: Session, name: str | None, namespace: str | None) -> int:
    """List every served worker, draining ones included.

    Exit status 1 if there is none with this name or namespace.
    """
    with session.client() as client:
        served = client.workers(name=name, namespace=namespace)
    if session.json:
        session.show_json(served)
    else:
        session.show(show.workers(served.workers, session.limit()))
    chosen = name is not None or namespace is not None
    return NO if chosen and not served.workers else 0


@command.command()
@click.argument("what", metavar="[NAME or FILE]", required=False, type=click.Path())
@shared_options
@pass_session
def explain(session: Session, what: str | None) -> int:
    """Say why a card has its standing: for one FILE, or for all cards that ask for a NAME.

    Without either, for every card that is not serving its present content. What ends in .json, or
    has a slash and exists here, is looked up as a FILE first, anything else as a NAME first.

    Exit status 1 if a FILE does not serve its present content, if no card that asks for a NAME
    does, or, without either, if there is any card to explain.
    """
    from discoveryd.client import advice  # noqa: PLC0415 - resolve starts faster without

    with session.client() as client:
        found, model = (client.explain(), None) if what is None else advice.explain(client, what)
    if session.json:
        session.show_json(found)
    else:
        if model is not None:
            session.show([f"{printable(what or '')} is the operator's name for {printable(model)}"])
        session.show(advice.lines_of(found.verdicts))
    if what is None:
        return NO if found.verdicts else 0
    return 0 if any(verdict.good for verdict in found.verdicts) else NO


@command.command()
@click.argument("what", metavar="[NAME or FILE]", required=False, type=click.Path())
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="At most so many events.  [default: 100]",
)
@shared_options
@pass_session
def history(session: Session, what: str | None, limit: int | None) -> int:
    """Say what became of cards, the latest first: of one FILE, or of all that asked for a NAME.

    Without either, of all cards. What is a FILE and what a NAME is told apart as by explain. The
    daemon remembers the latest 100,000 events.

    Exit status 1 if nothing is known of it.
    """
    from discoveryd.client import advice  # noqa: PLC0415 - resolve starts faster without

    with session.client() as client:
        told = advice.history(client, what, limit)
    if session.json:
        session.show_json(told)
    elif told.events:
        session.show(show.history(told.events, session.limit()))
    else:
        complain("nothing is known of " + ("any card" if what is None else printable(what)))
    return 0 if told.events else NO


@command.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@shared_options
@pass_session
def sync(session: Session, files: tuple[str, ...]) -> int:
    """Wait until what is on disk now has been applied: of each FILE, or of everything.

    Exit status 1 if a FILE does not serve its present content.
    """
    from discoveryd.client import advice  # noqa: PLC0415 - resolve starts faster without

    with session.client() as client:
        applied = advice.sync(client, files)
    if session.json:
        session.show_json(applied)
    elif files:
        session.show(advice.lines_of(applied.verdicts))
    else:
        session.show([f"cards: {show.standings(applied.standings)}"])
    return 0 if all(verdict.good for verdict in applied.verdicts) else NO


@command.command()
@click.argument(
    "paths", metavar="FILE or DIR...", nargs=-1, required=True, type=click.Path(exists=True)
)
@click.option("--live", is_flag=True, help="Ask the daemon, one card by one; nothing changes.")
@shared_options
@pass_session
def check(session: Session, paths: tuple[str, ...], live: bool) -> int:
    """Judge card files, or the directories that hold them.

    As a daemon would that starts with these and nothing else; with --live, as the one that runs
    would judge each of them: as the next content of its file, or, if it lies elsewhere, as if it
    were dropped under its name.

    Exit status 1 if any would not serve.
    """
    from discoveryd.client import check as checking  # noqa: PLC0415 - it imports the registry

    sightings = checking.read(paths)
    if live:
        with session.client() as client:
            checks = checking.ask(client, sightings)
    else:
        checks = checking.judge(sightings)
    if session.json:
        session.show_json({"checks": checks})
    else:
        session.show(checking.lines_of(checks))
    if not checks:
        complain("there is no card file in what was named")
    return 0 if all(check.verdict.good for check in checks) else NO


@command.command()
@click.option("--name", metavar="NAME", callback=_text, help="Only what concerns this name.")
@click.option(
    "--since",
    metavar="EPOCH:REVISION",
    callback=_cursor,
    help="Begin with the difference since then instead of the whole state.",
)
@shared_options
@pass_session
def watch(session: Session, name: str | None, since: Cursor | None) -> None:
    """Print the present state, then every change, until interrupted.

    With --json each reply is a line, the empty ones that show every 20 seconds that the daemon
    lives included. Exit status 3 when the daemon stops, 130 when interrupted.
    """
    with session.client() as client, closing(client.watch(since, name)) as replies:
        for reply in replies:
            if session.json:
                session.show_json(reply)
            else:
                session.show(show.change(reply))


@command.command()
@shared_options
@pass_session
def status(session: Session) -> int:
    """Say how the daemon is. Exit status 1 if it is not healthy."""
    with session.client() as client:
        daemon = client.status()
    if session.json:
        session.show_json(daemon)
    else:
        session.show(show.status(daemon, session.limit()))
    return 0 if daemon.healthy else NO
