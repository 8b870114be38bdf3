"""explain, check and history: why cards have their standing, would have it, or had it."""

import click

from discoveryd.client.ctl import advice, show
from discoveryd.client.ctl.arguments import names_or_files
from discoveryd.client.ctl.session import NO, Session, complain, pass_session, shared_options
from discoveryd.core.text import printable


@click.command()
@click.argument(
    "what",
    metavar="[NAME or FILE]",
    required=False,
    type=click.Path(),
    shell_complete=names_or_files,
)
@shared_options
@pass_session
def explain(session: Session, what: str | None) -> int:
    """Say why a card has its standing.

    And what to do about it: for one FILE, for all cards that ask for a NAME, or, without either,
    for every card that is not serving its present content. What ends in .json, or has a slash and
    exists here, is looked up as a FILE first, anything else as a NAME first.

    Exit status 1 if a FILE does not serve its present content, if no card that asks for a NAME
    does, or, without either, if there is any card to explain.
    """
    with session.client() as client:
        found, model = (client.explain(), None) if what is None else advice.explain(client, what)
    if session.json:
        session.show_json(found)
    else:
        if model is not None:
            session.show([f"{printable(what or '')} is the operator's name for {printable(model)}"])
        if found.verdicts:
            session.show(advice.lines_of(found.verdicts))
        else:
            session.show(["nothing to explain: every card serves its present content"])
    if what is None:
        return NO if found.verdicts else 0
    return 0 if any(verdict.good for verdict in found.verdicts) else NO


@click.command()
@click.argument(
    "paths", metavar="FILE or DIR...", nargs=-1, required=True, type=click.Path(exists=True)
)
@click.option("--live", is_flag=True, help="Ask the daemon, one card by one; nothing changes.")
@shared_options
@pass_session
def check(session: Session, paths: tuple[str, ...], live: bool) -> int:
    """Judge card files before they are dropped.

    Files, or the directories that hold them. As a daemon would that starts with these and nothing
    else; with --live, as the one that runs would judge each of them: as the next content of its
    file, or, if it lies elsewhere, as if it were dropped under its name.

    Exit status 1 if any would not serve.
    """
    from discoveryd.client.ctl import check as checking  # noqa: PLC0415 - it imports the registry

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


@click.command()
@click.argument(
    "what",
    metavar="[NAME or FILE]",
    required=False,
    type=click.Path(),
    shell_complete=names_or_files,
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="At most so many events.  [default: 100]",
)
@shared_options
@pass_session
def history(session: Session, what: str | None, limit: int | None) -> int:
    """Say what became of cards, the latest first.

    Of one FILE, of all that asked for a NAME, or, without either, of all cards. What is a FILE and
    what a NAME is told apart as by explain. The daemon remembers the latest 100,000 events.

    Exit status 1 if nothing is known of it.
    """
    with session.client() as client:
        told = advice.history(client, what, limit)
    if session.json:
        session.show_json(told)
    elif told.events:
        session.show(show.history(told.events, session.limit()))
    else:
        complain("nothing is known of " + ("any card" if what is None else printable(what)))
    return 0 if told.events else NO
