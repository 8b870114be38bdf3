"""schema and completion: what editors and shells ask for. Neither needs a daemon."""

import json

import click

from discoveryd.client.ctl.session import PROGRAM, Session, pass_session, shared_options

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@shared_options
@pass_session
def schema(session: Session) -> None:
    """Print the card's JSON Schema.

    Of both forms of a card, for editors that complete and check JSON: point yours at it for the
    files of the drop directory. It knows what makes a card invalid, and the slips that are only
    warned of; whether cards may serve together is for check to say.
    """
    from discoveryd.core.parsing.schema import card_schema  # noqa: PLC0415 - completion has no use

    if session.json:
        session.show_json(card_schema())
    else:
        session.show(json.dumps(card_schema(), indent=2).splitlines())


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@shared_options
@pass_session
@click.pass_context
def completion(context: click.Context, session: Session, shell: str) -> None:
    """Print what makes a shell complete commands, names and files.

    For bash, in ~/.bashrc: eval "$(discoveryctl completion bash)". For zsh the same in ~/.zshrc;
    for fish: discoveryctl completion fish > ~/.config/fish/completions/discoveryctl.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - schema has no use

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"the command-line library knows nothing of {shell}.")
    variable = f"_{PROGRAM}_COMPLETE".upper()
    session.show(found(context.find_root().command, {}, PROGRAM, variable).source().splitlines())
