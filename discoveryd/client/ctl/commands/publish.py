"""publish, withdraw, drain and undrain: cards into the drop directory, out of it, changed there."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import click

from discoveryd.client.blocking import Client
from discoveryd.client.ctl import advice
from discoveryd.client.ctl.arguments import served_names, text
from discoveryd.client.ctl.session import NO, Session, complain, pass_session, shared_options
from discoveryd.client.errors import NoSuchFile, NoSuchModel
from discoveryd.client.workers import publishing
from discoveryd.client.workers.draining import set_accepting
from discoveryd.core.card import InvalidCard
from discoveryd.core.parsing.document import MAX_BYTES, read_object
from discoveryd.core.text import display_path, printable

_STDIN = "-"


def _card_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    del context
    try:
        if value is not None:
            publishing.check_name(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param=parameter) from None
    return value


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--as",
    "name",
    metavar="NAME.json",
    callback=_card_name,
    help="What the file is called in the drop directory.  [default: as FILE is]",
)
@shared_options
@pass_session
def publish(session: Session, file: str, name: str | None) -> int:
    """Put a card FILE into the drop directory.

    It appears whole and at once. FILE - is the standard input. A card of that name is replaced. It
    goes into the first of the daemon's drop directories in which you may write; DISCOVERYD_CARDS
    names another place. The card stays until it is withdrawn, whatever becomes of the worker,
    unless it says more under liveness.

    Exit status 1 if it does not get to serve.
    """
    if name is None:
        name = _own_name(file)
    content = _read(file)
    try:
        read_object(content)
    except InvalidCard as fault:
        complain(f"{file}: {fault.reasons[0].message}")
        return NO
    with session.client() as client:
        place = publishing.drop_directory(client.status(), os.environ)
        publishing.publish(content, name, place.path)
        applied = client.sync(place.named(name))
    if session.json:
        session.show_json(applied)
    else:
        session.show(advice.lines_of(applied.verdicts))
    return 0 if all(verdict.good for verdict in applied.verdicts) else NO


@click.command()
@click.argument("file", metavar="FILE or NAME.json", type=click.Path())
@shared_options
@pass_session
def withdraw(session: Session, file: str) -> int:
    """Remove a card from the drop directory.

    And say how many workers serve its names now. FILE is what was published, which stays where it
    is: only its name counts, unless it lies in a drop directory.

    Exit status 1 if there is no such card.
    """
    with session.client() as client:
        found = _lying(client, file)
        if len(found) != 1:
            complain(*_not_one(file, [path for path, _ in found]))
            return NO
        ((path, known_as),) = found
        names = _served(client, known_as)
        publishing.withdraw(path)
        with suppress(NoSuchFile):
            client.sync(known_as)
        left = {name: _workers(client, name) for name in names}
    if session.json:
        counts = {name: count or 0 for name, count in left.items()}
        session.show_json({"file": known_as, "workers": counts})
    else:
        session.show([f"{printable(known_as)}: withdrawn"])
        session.show(f"  {printable(name)}: {_count(count)}" for name, count in left.items())
    return 0


@click.command()
@click.argument("what", metavar="NAME or KEY", callback=text, shell_complete=served_names)
@shared_options
@pass_session
def drain(session: Session, what: str) -> int:
    """Take workers out of the answers, but keep their names.

    So that they finish what they have. Of all workers of a NAME, or the one with that KEY, the card
    files that are yours are rewritten to say "accepting": false; root's may be anybody's. Nothing
    else in them changes.

    Exit status 1 if there is nothing to drain, or nothing that is yours.
    """
    return _set_accepting(session, what, accepting=False)


@click.command()
@click.argument("what", metavar="NAME or KEY", callback=text, shell_complete=served_names)
@shared_options
@pass_session
def undrain(session: Session, what: str) -> int:
    """Let workers that drain take new requests again.

    Of all workers of a NAME, or the one with that KEY, as drain does it.

    Exit status 1 if there is nothing to undrain, or nothing that is yours.
    """
    return _set_accepting(session, what, accepting=True)


def _own_name(file: str) -> str:
    if file == _STDIN:
        raise click.UsageError("what comes from the standard input needs a name: --as NAME.json")
    name = Path(file).name
    try:
        publishing.check_name(name)
    except ValueError as fault:
        raise click.UsageError(f"{fault}; give it one: --as NAME.json") from None
    return name


def _read(file: str) -> bytes:
    """Return what the file holds; more than a card may have is not read to its end."""
    if file == _STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as card:
            return card.read(MAX_BYTES + 1)
    except OSError as fault:
        raise click.FileError(file, fault.strerror) from None


def _lying(client: Client, file: str) -> list[tuple[str, str]]:
    """Return the card files in drop directories that may be meant: path, and the daemon's name."""
    places = publishing.drop_directories(client.status(), os.environ)
    folder, name = Path(file).parent, Path(file).name
    if "/" in file:
        own = [place for place in places if _is_same(folder, place.path)]
        places = own or places
    return [
        (f"{place.path}/{name}", place.named(name))
        for place in places
        if os.path.lexists(f"{place.path}/{name}")
    ]


def _not_one(file: str, paths: list[str]) -> list[str]:
    if not paths:
        return [f"there is no card {Path(file).name} in a drop directory"]
    shown = [f"  {display_path(os.fsencode(path))}" for path in paths]
    return ["there are several cards of that name; say which:", *shown]


def _is_same(folder: Path, place: str) -> bool:
    try:
        return folder.samefile(place)
    except OSError:
        return False


def _served(client: Client, file: str) -> tuple[str, ...]:
    """Return the names that the card in the file serves."""
    try:
        verdicts = client.explain(file=file).verdicts
    except NoSuchFile:
        return ()
    return tuple(
        name for verdict in verdicts if verdict.serves != "nothing" for name in verdict.names
    )


def _workers(client: Client, name: str) -> int | None:
    """Return how many workers are in the answer to a name; None if nobody has it."""
    try:
        return len(client.resolve(name).workers)
    except NoSuchModel:
        return None


def _count(workers: int | None) -> str:
    if workers == 0:
        return "nobody, but workers that drain keep it"
    return f"{workers} worker{'' if workers == 1 else 's'}" if workers else "nobody"


def _set_accepting(session: Session, what: str, *, accepting: bool) -> int:
    with session.client() as client:
        outcome = set_accepting(client, what, accepting, os.environ)
    if session.json:
        session.show_json(outcome)
    else:
        now = "accepting" if accepting else "draining"
        session.show(f"{printable(verdict.file)}: {now}" for verdict in outcome.verdicts)
        session.show(f"{printable(file)}: {now} already" for file in outcome.unchanged)
        session.show(advice.lines_of(v for v in outcome.verdicts if not v.good))
        for left in outcome.untouched:
            complain(f"not touched: {left.file}: {left.why}")
    return 0 if outcome.files else NO
