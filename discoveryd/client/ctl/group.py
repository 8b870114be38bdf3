"""How discoveryctl holds its commands: by name and in one line each, imported when they are called.

So `--help` and completion of a command's name import none of them, and each run only its own. Which
commands there are is not known here.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Row(NamedTuple):
    """Where a command lives, as MODULE:NAME, and its short help."""

    place: str
    summary: str


class Commands(click.Group):
    """A group of commands that are imported when they are called. `rows` holds them by name."""

    def __init__(self, *, rows: Mapping[str, Row], **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(**settings)
        self.rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order in which people are told of them."""
        del ctx
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported here; None if there is none of that name."""
        del ctx
        row = self.rows.get(cmd_name)
        if row is None:
            return None
        module, _, name = row.place.partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{row.place} is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with, and the rest of them.

        Raises click.UsageError, with what may have been meant, if there is none of that name.
        """
        name = args[0]
        if name in self.rows or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        # Seldom needed, and not small.
        from difflib import get_close_matches  # noqa: PLC0415

        close = get_close_matches(name, self.rows, n=3, cutoff=0.6)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        return ctx.fail(f"There is no command {name!a}.{meant}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in self.rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Return the commands and options that begin like this."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - shells ask seldom

        names = (name for name in self.rows if name.startswith(incomplete))
        found = [CompletionItem(name, help=self.rows[name].summary) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)
