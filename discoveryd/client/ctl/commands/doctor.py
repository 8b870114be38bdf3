"""doctor: what keeps people from their daemon, its directories and each other."""

import os

import click

from discoveryd.client.ctl.session import NO, Session, pass_session, shared_options
from discoveryd.client.doctor.findings import any_wrong, lines_of
from discoveryd.client.doctor.visit import examine


@click.command()
@shared_options
@pass_session
def doctor(session: Session) -> int:
    """Examine why things do not work.

    Sockets and directories with their permissions, what the daemon sees of them, the kernel's
    limits, clocks, the ledger, systemd's units, containers; with a daemon or without. Nothing is
    written. More is seen as root, or as the daemon's user.

    Exit status 1 if something is wrong.
    """
    findings = examine(session.socket, os.environ, session.timeout)
    if session.json:
        session.show_json(findings)
    else:
        session.show(lines_of(findings))
    return NO if any_wrong(findings) else 0
