"""status and reload: the daemon itself."""

import os
import shlex

import click

from discoveryd.client.ctl import show
from discoveryd.client.ctl.session import (
    NO,
    PROGRAM,
    Session,
    complain,
    pass_session,
    shared_options,
)
from discoveryd.client.errors import CallRefused
from discoveryd.core.text import printable

_DENIED = "org.varlink.service.PermissionDenied"


@click.command()
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


@click.command()
@shared_options
@pass_session
def reload(session: Session) -> int:
    """Let the daemon read its configuration again.

    Prints what that changed, and what of it was not taken over. Only root and the daemon's own user
    may. Exit status 1 if there are problems.
    """
    with session.client() as client:
        try:
            done = client.reload()
        except CallRefused as error:
            if error.name != _DENIED:
                raise
            if session.json:
                session.show_json({"error": error.name, "parameters": error.parameters})
            complain(
                "only root and the daemon's own user may let it read its configuration again",
                f"Try: {_as_root(session.socket)}",
            )
            return NO
    if session.json:
        session.show_json(done)
    else:
        changed = (f"changed: {printable(change)}" for change in done.changed)
        session.show(changed if done.changed else ["nothing changed"])
        for problem in done.problems:
            complain(problem)
    return NO if done.problems else 0


def _as_root(named: str | None) -> str:
    """Return the command that asks the same daemon as root; one that nobody named is root's own."""
    socket = named or os.environ.get("DISCOVERYD_SOCKET")
    return f"sudo {PROGRAM} reload" + (f" --socket {shlex.quote(socket)}" if socket else "")
