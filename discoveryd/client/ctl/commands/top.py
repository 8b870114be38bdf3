"""top: everything at a glance, kept current on a terminal."""

import os
import sys

import click

from discoveryd.client.ctl.mending import in_shell
from discoveryd.client.ctl.session import Session, complain, pass_session, shared_options

_USAGE = 2
_DUMB = ("", "dumb", "unknown")


@click.command()
@click.option("--once", is_flag=True, help="Print one picture, and end.")
@shared_options
@pass_session
def top(session: Session, once: bool) -> int:
    """Show models, workers and what waits, as they change.

    q or Ctrl-C ends. Where the output is no terminal, it is as with --once. While the daemon is
    away the last picture stays, and says how old it is. There is no --json: watch has it.

    It needs rich, which comes with the extra discoveryd[top].
    """
    if session.json:
        raise click.UsageError("top draws for people. For JSON use: discoveryctl watch --json")
    try:
        from discoveryd.client.top.drawing import lines_of  # noqa: PLC0415 - rich may be missing
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "rich":
            raise
        install = f"{in_shell(sys.executable)} -m pip install 'discoveryd[top]'"
        complain("top needs rich, which is not installed. Install it:", install)
        return _USAGE
    from discoveryd.client.top.picture import picture  # noqa: PLC0415 - only now of use

    if not once and sys.stdout.isatty() and os.environ.get("TERM", "") not in _DUMB:
        import anyio  # noqa: PLC0415 - one picture needs no loop

        from discoveryd.client.top.live import show_live  # noqa: PLC0415 - the same

        anyio.run(show_live, session.socket, session.timeout)
        return 0
    with session.client() as client:
        names = client.list().names
        workers = client.workers().workers
        waiting = client.explain().verdicts
        status = client.status()
    session.show(lines_of(picture(names, workers, waiting, status), session.limit()))
    return 0
