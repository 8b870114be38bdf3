"""resolve, list and workers: what is served."""

import click

from discoveryd.client.ctl import show
from discoveryd.client.ctl.arguments import served_names, text
from discoveryd.client.ctl.session import NO, Session, complain, pass_session, shared_options
from discoveryd.core.text import printable


@click.command()
@click.argument("name", callback=text, shell_complete=served_names)
@click.option("--url", is_flag=True, help="Print the workers' URLs only, one a line.")
@shared_options
@pass_session
def resolve(session: Session, name: str, url: bool) -> int:
    """Say which workers serve NAME.

    Workers that drain are left out. Exit status 1 if nobody serves the name, or if it is not ready.
    """
    if url and session.json:
        raise click.UsageError("--url and --json exclude each other.")
    with session.client() as client:
        answer = client.resolve(name)
    if session.json:
        session.show_json(answer)
    elif url:
        session.show(printable(worker.url) for worker in answer.workers if worker.url is not None)
    else:
        session.show(show.resolution(answer, session.limit()))
    if not answer.ready:
        complain(show.why_not_ready(answer))
        return NO
    if url and not any(worker.url for worker in answer.workers):
        complain(f"no card of {name} gives a URL")
        return NO
    return 0


@click.command("list")
@shared_options
@pass_session
def list_names(session: Session) -> None:
    """List every served name.

    With what stands by behind it, and with the names that only waiting cards ask for below. JSON
    has the served names only.
    """
    with session.client() as client:
        served = client.list()
        waiting = () if session.json else client.explain().verdicts
    if session.json:
        session.show_json(served)
        return
    from discoveryd.client.ctl import listing  # noqa: PLC0415 - resolve starts faster without

    session.show(listing.names(served.names, waiting, session.limit()))


@click.command()
@click.option(
    "--name",
    metavar="NAME",
    callback=text,
    shell_complete=served_names,
    help="Only those that answer this name.",
)
@click.option("--namespace", metavar="NAMESPACE", callback=text, help="Only those in it.")
@shared_options
@pass_session
def workers(session: Session, name: str | None, namespace: str | None) -> int:
    """List every served worker, draining ones included.

    Exit status 1 if there is none with this name or namespace.
    """
    with session.client() as client:
        served = client.workers(name=name, namespace=namespace)
    if session.json:
        session.show_json(served)
    else:
        session.show(show.workers(served.workers, session.limit()))
    chosen = name is not None or namespace is not None
    return NO if chosen and not served.workers else 0
