"""adopt: servers that run already, registered from their own listings."""

import os
import signal
from collections.abc import Sequence
from typing import cast

import anyio
import click

from discoveryd.client.adopting.adopted import Place
from discoveryd.client.adopting.keeping import Server
from discoveryd.client.adopting.listings import Ambiguous, Override
from discoveryd.client.ctl.arguments import text
from discoveryd.client.ctl.session import INTERRUPTED, Session, pass_session, shared_options
from discoveryd.client.notify import notify
from discoveryd.client.urls import url_problem
from discoveryd.core.parsing.names import name_problem
from discoveryd.core.text import printable
from discoveryd.interface import Verdict


def _bases(
    context: click.Context, parameter: click.Parameter, urls: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the servers' base URLs, each once: without the /v1 that clients append."""
    del context
    bases = [url.rstrip("/").removesuffix("/v1").rstrip("/") for url in urls]
    for url, base in zip(urls, bases, strict=True):
        problem = url_problem(base)
        if problem is not None:
            # A password is not repeated.
            shown = "a URL" if "@" in url else f"{url!a}"
            raise click.BadParameter(f"{shown} {problem}", param=parameter)
    return tuple(dict.fromkeys(bases))


def _key(
    context: click.Context, parameter: click.Parameter, variable: str | None
) -> dict[str, str]:
    """Return the headers that bear the key in the variable. The key is never repeated."""
    del context
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise click.BadParameter(f"the variable {variable!a} is not set", param=parameter)
    if not key.isascii() or not key.isprintable() or " " in key:
        problem = f"what the variable {variable!a} holds cannot be a key: it has other characters"
        raise click.BadParameter(f"{problem} than visible ASCII ones", param=parameter)
    return {"Authorization": f"Bearer {key}"}


def _name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    text(context, parameter, value)
    problem = None if value is None else name_problem(value)
    if problem is not None:
        raise click.BadParameter(f"{value!a} {problem}", param=parameter)
    return value


def _names(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        _name(context, parameter, value)
    return values


class _Lines:
    """Tells the session, in lines."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def card(
        self, url: str, change: str, names: Sequence[str], verdict: Verdict | None, why: str | None
    ) -> None:
        if self._session.json:
            self._show_json(url, change, names, verdict, why)
            return
        primary, *aliases = names
        named = f"{primary} (aliases {', '.join(aliases)})" if aliases else primary
        line = f"{change} {named} from {url}"
        if verdict is not None:
            reasons = [reason.message for reason in verdict.reasons]
            line += f" as {verdict.file}: {'. '.join([verdict.standing, *reasons])}"
        if why is not None:
            line += f": {_one_line(why)}"
        self._session.show([printable(line)])

    def server(self, url: str, sentence: str) -> None:
        if self._session.json:
            self._show_json(url, "server", (), None, sentence)
        else:
            self._session.show([printable(f"{url}: {_one_line(sentence)}")])

    def _show_json(
        self, url: str, change: str, names: Sequence[str], verdict: Verdict | None, why: str | None
    ) -> None:
        line = {"url": url, "change": change, "names": names, "verdict": verdict, "why": why}
        self._session.show_json(line)


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True, callback=_bases)
@click.option(
    "--name", metavar="NAME", callback=_name, help="Its name, instead of the listed ones."
)
@click.option(
    "--alias",
    "aliases",
    metavar="NAME",
    multiple=True,
    callback=_names,
    help="A further name; may be given several times.",
)
@click.option("--source", metavar="PATH", callback=text, help="Where its weights come from.")
@click.option(
    "--api-key-env",
    "headers",
    metavar="VARIABLE",
    callback=_key,
    help="The environment variable that holds the servers' API key.",
)
@click.option("--all", "everything", is_flag=True, help="Also what is not loaded at the moment.")
@shared_options
@pass_session
def adopt(  # noqa: PLR0913, PLR0917  # one for each option, by keyword
    session: Session,
    urls: tuple[str, ...],
    name: str | None,
    aliases: tuple[str, ...],
    source: str | None,
    headers: dict[str, str],
    everything: bool,
) -> int:
    """Register servers that run already, by their listings.

    vLLM, SGLang, llama.cpp, Ollama, LM Studio, and whatever else has /v1/models. Each base and each
    adapter gets a card, which is kept up to date as the listing changes. Servers are asked every 5
    seconds. Three failures in a row drain their cards, one answer takes them back; where nobody
    listens any more, the cards are withdrawn until somebody does.

    --name, --alias and --source are for servers of one model, which must answer to these names.
    The key of --api-key-env is sent to every URL.

    Runs until it is interrupted, and withdraws all cards then: exit status 130, after SIGTERM 0.
    """
    with session.client() as client:
        client.status()
    tell = _Lines(session)
    place = Place(session.socket, session.timeout)
    override = Override(name, aliases, source)
    servers = [
        Server(
            url, place=place, tell=tell, everything=everything, override=override, headers=headers
        )
        for url in urls
    ]
    try:
        return anyio.run(_keep, servers)
    except BaseExceptionGroup as group:
        fault = _first(group)
        if isinstance(fault, Ambiguous):
            raise click.UsageError(
                f"--name, --alias and --source are for one model, but {fault}: leave them out."
            ) from None
        raise fault from None


async def _keep(servers: Sequence[Server]) -> int:
    """Keep the servers' cards until a signal; return the exit status."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(server.keep, tasks)
            tasks.start_soon(_tell_systemd, servers)
            async for number in signals:
                notify("STOPPING=1")
                tasks.cancel_scope.cancel()
                return 0 if number == signal.SIGTERM else INTERRUPTED
    return 0


async def _tell_systemd(servers: Sequence[Server]) -> None:
    """Say READY=1 once every server has been asked."""
    for server in servers:
        await server.asked.wait()
    notify("READY=1")


def _first(fault: BaseException) -> BaseException:
    """Return the error that ended the tasks; the others were cancelled by it."""
    while isinstance(fault, BaseExceptionGroup):
        fault = cast("BaseExceptionGroup[BaseException]", fault).exceptions[0]
    return fault


def _one_line(sentences: str) -> str:
    return " ".join(line.strip() for line in sentences.splitlines())
