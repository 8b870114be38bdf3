"""sync, watch and wait: what goes on until the daemon says something."""

from contextlib import closing

import click

from discoveryd.client.ctl import advice, show
from discoveryd.client.ctl.arguments import cursor, served_names, text
from discoveryd.client.ctl.session import (
    NO,
    TIMED_OUT,
    Seconds,
    Session,
    complain,
    options_but_timeout,
    pass_session,
    shared_options,
)
from discoveryd.interface import Cursor, Resolution


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@shared_options
@pass_session
def sync(session: Session, files: tuple[str, ...]) -> int:
    """Wait until what is on disk now has been applied.

    Of each FILE, and say what came of it; or of everything.

    Exit status 1 if a FILE does not serve its present content.
    """
    with session.client() as client:
        applied = advice.sync(client, files)
    if session.json:
        session.show_json(applied)
    elif files:
        session.show(advice.lines_of(applied.verdicts))
    else:
        session.show([f"cards: {show.standings(applied.standings)}"])
    return 0 if all(verdict.good for verdict in applied.verdicts) else NO


@click.command()
@click.option(
    "--name",
    metavar="NAME",
    callback=text,
    shell_complete=served_names,
    help="Only what concerns this name.",
)
@click.option(
    "--since",
    metavar="EPOCH:REVISION",
    callback=cursor,
    help="Begin with the difference since then instead of the whole state.",
)
@shared_options
@pass_session
def watch(session: Session, name: str | None, since: Cursor | None) -> None:
    """Print the present state, then every change.

    With --json each reply is a line, the empty ones that show every 20 seconds that the daemon
    lives included. Exit status 3 when the daemon stops, 130 when interrupted.
    """
    with session.client() as client, closing(client.watch(since, name)) as replies:
        for reply in replies:
            if session.json:
                session.show_json(reply)
            else:
                session.show(show.change(reply))


@click.command()
@click.argument("name", callback=text, shell_complete=served_names)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many workers must take requests.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="How long to wait altogether.  [default: for ever]",
)
@options_but_timeout
@pass_session
def wait(session: Session, name: str, workers: int, timeout: float | None) -> int:
    """Wait until NAME is served and ready.

    And then print who serves it, as resolve does. What it waits for is said on stderr: a card that
    is missing, or why one that asks for the name does not serve. A daemon that is not there yet, or
    restarts, is waited for.

    Exit status 4 if it is not there in time.
    """
    timeout = session.given_timeout if timeout is None else timeout
    import anyio  # noqa: PLC0415 - sync and watch start faster without

    from discoveryd.client.aio import AsyncClient  # noqa: PLC0415 - the same
    from discoveryd.client.ctl.progress import ProgressLine  # noqa: PLC0415 - the same
    from discoveryd.client.ctl.waiting import Wait  # noqa: PLC0415 - the same

    line = ProgressLine()

    async def waited() -> Resolution | str:
        """Return the answer, or why it was not there in time."""
        async with AsyncClient(session.socket, timeout=session.timeout) as client:
            waiting = Wait(
                client, name, workers, lambda why: line.say(f"waiting for {name}: {why}")
            )
            with anyio.move_on_after(timeout):
                return await waiting.run()
            return waiting.why

    try:
        outcome = anyio.run(waited)
    finally:
        line.close()
    if isinstance(outcome, str):
        complain(f"{name} is not there after {timeout:g} s: {outcome}")
        return TIMED_OUT
    if session.json:
        session.show_json(outcome)
    else:
        session.show(show.resolution(outcome, session.limit()))
    return 0
