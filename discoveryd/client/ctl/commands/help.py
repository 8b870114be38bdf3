"""help: the pages of the reference, with what is generated from the commands and the interface.

Needs no daemon. What a page says is written beside the code that it describes: see pages.py.
"""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from discoveryd.client.ctl.pages import INTERFACE, PAGES, read
from discoveryd.client.ctl.session import PROGRAM, Session, pass_session, shared_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list["CompletionItem"]:
    del parameter
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - shells ask seldom

    return [
        CompletionItem(name, help=PAGES[name].summary if name in PAGES else None)
        for name in dict.fromkeys([*PAGES, *_commands(context)])
        if name.startswith(incomplete)
    ]


@click.command("help")
@click.argument("topic", required=False, shell_complete=_topics)
@shared_options
@pass_session
@click.pass_context
def show_page(context: click.Context, session: Session, topic: str | None) -> None:
    """Show a page of the reference.

    Without TOPIC, list the topics. The name of a command is one, too: it shows what the command
    takes. On a terminal a page goes through $PAGER.
    """
    if topic is None:
        _list_topics(session)
        return
    page = "\n".join(_parts(context, topic))
    if session.json:
        session.show_json({"topic": topic, "page": page})
    elif sys.stdout.isatty():
        click.echo_via_pager(page)
    else:
        session.show(page.splitlines())


def _list_topics(session: Session) -> None:
    if session.json:
        session.show_json({"topics": {name: page.summary for name, page in PAGES.items()}})
        return
    text = click.HelpFormatter(width=session.limit())
    with text.section(f"Topics, for {PROGRAM} help TOPIC"):
        text.write_dl([(name, page.summary) for name, page in PAGES.items()])
    text.write_paragraph()
    text.write_text(f"{PROGRAM} help COMMAND says what a command takes.")
    session.show(text.getvalue().splitlines())


def _parts(context: click.Context, topic: str) -> Iterable[str]:
    """Give the page, and what is generated for it. Raises click.UsageError if there is none."""
    commands = _commands(context)
    if topic not in PAGES and topic not in commands:
        close = get_close_matches(topic, [*PAGES, *commands], n=3, cutoff=0.6)
        advice = f"Did you mean {' or '.join(close)}?" if close else f"{PROGRAM} help lists them."
        raise click.UsageError(f"There is no topic {topic!a}. {advice}")
    if topic in PAGES:
        yield read(PAGES[topic].file)
    if topic == "interface":
        yield f"## The definition\n\n```varlink\n{read(INTERFACE)}```\n"
    if topic == "commands":
        yield f"## {PROGRAM}\n\n{_indented(context.find_root().get_help())}"
    for name in commands if topic == "commands" else [topic] if topic in commands else []:
        yield f"## {PROGRAM} {name}\n\n{_indented(_taken(context, name))}"


def _commands(context: click.Context) -> list[str]:
    root = context.find_root()
    return root.command.list_commands(root) if isinstance(root.command, click.Group) else []


def _taken(context: click.Context, name: str) -> str:
    """Return what the command's own --help says."""
    root = context.find_root()
    command = (
        root.command.get_command(root, name) if isinstance(root.command, click.Group) else None
    )
    if command is None:
        raise LookupError(f"{name} is listed, but no command")
    return command.get_help(click.Context(command, root, info_name=name))


def _indented(text: str) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())
