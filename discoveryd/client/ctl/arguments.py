"""What commands are told in words: names, card files, cursors; checked, and completed for shells.

The functions are what click calls back. Completion asks the daemon, says nothing where there is
none, and waits for it no longer than a person would before pressing the key again.
"""

from typing import TYPE_CHECKING, NoReturn

import click

from discoveryd.client.ctl.session import Session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from discoveryd.interface import Cursor

_PATIENCE_SECONDS = 0.5


def text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a name that is no text, or empty as an unset variable is: the daemon has none such."""
    del context
    if value == "":
        _fail("is empty", parameter)
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        _fail("is not UTF-8", parameter)
    return value


def cursor(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> "Cursor | None":
    """Return the point in the daemon's history that EPOCH:REVISION names."""
    del context
    if value is None:
        return None
    from discoveryd.interface import Cursor  # noqa: PLC0415 - --help has no use for it

    epoch, colon, revision = value.rpartition(":")
    if not colon or not revision.isdecimal():
        _fail("must be EPOCH:REVISION, as watch prints it", parameter)
    return Cursor(epoch, int(revision))


def served_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    """Return the served names that begin like this, as far as no shell would take them apart."""
    del parameter
    from shlex import quote  # noqa: PLC0415 - shells ask seldom

    from click.shell_completion import CompletionItem  # noqa: PLC0415 - the same

    from discoveryd.client.errors import DiscoverydError  # noqa: PLC0415 - the same

    session = context.find_object(Session) or Session()
    session.given_timeout = min(session.timeout, _PATIENCE_SECONDS)
    try:
        with session.client() as client:
            names = [served.name for served in client.list().names]
    except DiscoverydError:
        return []
    found = (name for name in names if name.startswith(incomplete) and quote(name) == name)
    return [CompletionItem(name) for name in found]


def names_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    """Return the served names that begin like this; where none does, the shell looks for files."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - shells ask seldom

    named = served_names(context, parameter, incomplete)
    return named or [CompletionItem(incomplete, type="file")]


def _fail(what: str, parameter: click.Parameter) -> NoReturn:
    raise click.BadParameter(what, param=parameter) from None
