"""run: a worker's command with its card, from the command line to the exit status."""

from typing import NoReturn

import anyio
import click

from discoveryd.client.ctl.session import Seconds, Session, pass_session, shared_options
from discoveryd.client.errors import ConnectionLost, DiscoverydError, NoDaemon, Timeout
from discoveryd.client.running.planning import (
    Plan,
    forecast,
    held,
    named,
    read_card,
)
from discoveryd.client.running.readiness import usual_places
from discoveryd.client.running.supervising import FAILED, supervise
from discoveryd.client.running.telling import Voice
from discoveryd.client.running.verdicts import card_state, is_refused, refusal
from discoveryd.client.urls import can_be_asked, url_problem
from discoveryd.core.card import InvalidCard

_PARTS = ("namespace", "component", "endpoint")


class _Run(click.Command):
    """A command whose own failures are told apart from those of the command that it runs."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Return the context of the arguments."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as fault:
            _fail(fault)

    def invoke(self, ctx: click.Context) -> object:
        """Call the function below."""
        try:
            return super().invoke(ctx)
        except click.UsageError as fault:
            _fail(fault)


def _fail(fault: click.UsageError) -> NoReturn:
    """Say what is wrong with the usage, and end with the status of our own failures."""
    fault.show()
    raise click.exceptions.Exit(FAILED) from None


def _text(
    context: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Refuse what is no text: no card can hold it."""
    del context
    try:
        "".join(value or ()).encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not UTF-8", param=parameter) from None
    return value


def _place(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> dict[str, object]:
    """Return the members that NS/COMP/EP stands for."""
    _text(context, parameter, value)
    if value is None:
        return {}
    parts = value.split("/")
    if len(parts) != len(_PARTS) or not all(parts):
        raise click.BadParameter("must be NAMESPACE/COMPONENT/ENDPOINT", param=parameter)
    return dict(zip(_PARTS, parts, strict=True))


def _ready(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """Refuse a URL that cannot be asked."""
    _text(context, parameter, url)
    # A card's url is a base; what is asked may have a query.
    problem = None if url is None else url_problem(url.partition("?")[0])
    if problem is not None:
        raise click.BadParameter(problem, param=parameter)
    return url


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--name", metavar="NAME", callback=_text, help="The model's primary name.")
@click.option(
    "--alias",
    "aliases",
    metavar="NAME",
    multiple=True,
    callback=_text,
    help="A further name; may be given several times.",
)
@click.option("--source", metavar="PATH", callback=_text, help="Where the weights come from.")
@click.option("--url", metavar="URL", callback=_text, help="Where clients reach the worker.")
@click.option(
    "--endpoint",
    "place",
    metavar="NS/COMP/EP",
    callback=_place,
    help="Its namespace, component and endpoint.",
)
@click.option(
    "--card",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The card, instead of all these.",
)
@click.option(
    "--ready",
    metavar="URL",
    callback=_ready,
    help="What to ask whether it is ready.  [default: its /health, then /v1/models]",
)
@click.option(
    "--drain",
    metavar="SECONDS",
    type=Seconds(min=0),
    default=2.0,
    help="How long to drain before it is told to end.  [default: 2]",
)
@click.option("--standby", is_flag=True, help="Let the card wait if it does not get to serve.")
@shared_options
@pass_session
def run(  # noqa: PLR0913, PLR0917  # one for each option, by keyword
    session: Session,
    command: tuple[str, ...],
    name: str | None,
    aliases: tuple[str, ...],
    source: str | None,
    url: str | None,
    place: dict[str, object],
    file: str | None,
    ready: str | None,
    drain: float,
    standby: bool,
) -> int:
    """Run a worker's COMMAND, and keep its card as long as it lives.

    The card is published when the worker is ready, and withdrawn when COMMAND has ended, whatever
    happens in between. The worker is asked every 5 seconds: three misses in a row drain it, one
    answer takes that back. SIGTERM and SIGINT drain first, and then go on to COMMAND; a second one
    goes on at once. Under systemd it is Type=notify: ready when the card serves.

    A card that would not get to serve ends it before COMMAND is started, and one that does not
    after all, when COMMAND is ready; unless it may wait, with --standby.

    The output is COMMAND's, with --json too; what run says goes to stderr.

    Exit status: that of COMMAND, 128+n if signal n ended it; 125 if run itself fails, 126 if
    COMMAND cannot be started, 127 if there is none.
    """
    if file is not None and (name or aliases or source or url or place):
        raise click.UsageError("--card says all of --name, --alias, --source, --url, --endpoint.")
    if file is None and name is None:
        raise click.UsageError("Say what it serves, with --name or --card.")
    voice = Voice()
    try:
        if file is None:
            members = {"display_name": name, "aliases": aliases, "source_path": source, "url": url}
            card = held({member: value for member, value in members.items() if value} | place)
        else:
            card = held(read_card(file))
        card_file, warnings = named(card)
        for warning in warnings:
            voice.say(f"warning: {warning}")
        plan = Plan(
            command=command,
            card=card,
            file=card_file,
            places=_places(card.get("url"), ready),
            socket=session.socket,
            patience=session.timeout,
            standby=standby,
            drain=drain,
        )
        if _foresees_a_no(session, plan, voice):
            return FAILED
    except InvalidCard as fault:
        what = "the options make no card" if file is None else f"{file} is no card"
        voice.say("\n".join(f"{what}: {reason.message}" for reason in fault.reasons))
        return FAILED
    except DiscoverydError as fault:
        voice.say(str(fault))
        return FAILED
    except OSError as fault:
        voice.say(f"cannot read {file}: {fault.strerror}")
        return FAILED
    except ValueError as fault:
        voice.say(f"{'the options' if file is None else file}: {fault}")
        return FAILED
    return anyio.run(supervise, plan, voice)


def _places(url: object, ready: str | None) -> tuple[str, ...]:
    """Return what to ask whether the worker is ready."""
    if ready is not None:
        return (ready,)
    if not isinstance(url, str):
        raise click.UsageError("Say where it answers, with --url or --ready.")
    if not can_be_asked(url):
        raise click.UsageError(f"{url} cannot be asked over HTTP: say with --ready what can.")
    return usual_places(url)


def _foresees_a_no(session: Session, plan: Plan, voice: Voice) -> bool:
    """Say what the card would get, and whether that is a reason not to start."""
    try:
        with session.client() as client:
            verdict = forecast(client, plan)
    except (NoDaemon, ConnectionLost, Timeout):
        voice.say("no discoveryd answers yet: the card is published when one does")
        return False
    if is_refused(verdict, standby=plan.standby):
        voice.say(f"not started: {refusal(verdict)}")
        return True
    if not verdict.good:
        voice.say(f"as things are: {card_state(verdict)}")
    return False
