"""export: what is served, in the format of a router that runs already."""

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from discoveryd.client.ctl.session import Session, complain, pass_session, shared_options

if TYPE_CHECKING:
    from discoveryd.client.exporting.keeping import Keeping
    from discoveryd.client.exporting.served import Served

_AT = "discoveryd.client.exporting"
FORMATS: Final = ("litellm", "nginx", "prometheus")
"""Each is a module with the function `text`."""


@click.command()
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to write it, by a rename, if it is not what FILE holds.  [default: stdout]",
)
@click.option("--watch", "watching", is_flag=True, help="Go on, and keep FILE up to date.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="With --watch: what to run by sh after each change of FILE.",
)
@shared_options
@pass_session
def export(
    session: Session, form: str, output: str | None, watching: bool, command: str | None
) -> int:
    """Write what is served in the FORMAT of a router.

    litellm: LiteLLM's model_list, with an entry for each name and worker. nginx: upstreams, and a
    map from names to them. prometheus: targets for file_sd_configs. What a FORMAT cannot say is
    left out; where it has comments, they say so.

    With --watch FILE is written once a second at most, and only if it changes. While the daemon is
    away, it stays as it is. A COMMAND that fails is told, and ends nothing. SIGTERM and SIGINT end
    it: exit status 0.
    """
    if session.json:
        raise click.UsageError("Each FORMAT is one of its own: leave out --json.")
    if watching and output is None:
        raise click.UsageError("--watch keeps a file up to date: say which with --output.")
    if command is not None and not watching:
        raise click.UsageError("--exec goes with --watch.")
    render: Callable[[Served], str] = import_module(f"{_AT}.{form}").text
    if watching and output is not None:
        return _watch(session, output, render, command)
    text = render(_served(session))
    if output is None:
        session.show(text.removesuffix("\n").split("\n"))
    else:
        from discoveryd.client.exporting.keeping import put  # noqa: PLC0415 - stdout has no use

        put(output, text)
    return 0


def _served(session: Session) -> "Served":
    """Return everything that is served at one moment, which only a watch tells."""
    from discoveryd.client.exporting.served import Served  # noqa: PLC0415 - --help has no use
    from discoveryd.client.mirror import Mirror  # noqa: PLC0415 - the same

    mirror = Mirror()
    with session.client() as client, closing(client.watch()) as replies:
        while not mirror.whole:
            mirror.take(next(replies))
    return Served.of(mirror.names.values(), mirror.workers.values())


def _watch(
    session: Session, output: str, render: "Callable[[Served], str]", command: str | None
) -> int:
    import anyio  # noqa: PLC0415 - one look needs no loop

    from discoveryd.client.exporting.keeping import Keeping  # noqa: PLC0415 - the same

    anyio.run(_keep, session, Keeping(output, render, command, complain))
    return 0


async def _keep(session: Session, keeping: "Keeping") -> None:
    """Keep the file until a signal."""
    import signal  # noqa: PLC0415 - one look needs none

    import anyio  # noqa: PLC0415 - the same

    from discoveryd.client.errors import DiscoverydError  # noqa: PLC0415 - the same
    from discoveryd.client.notify import notify  # noqa: PLC0415 - the same
    from discoveryd.client.view import Models  # noqa: PLC0415 - the same

    async def end() -> None:
        async for _ in signals:
            notify("STOPPING=1")
            tasks.cancel_scope.cancel()

    failure: DiscoverydError | None = None
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            try:
                async with Models.follow(session.socket, timeout=session.timeout) as models:
                    keeping.write(models)
                    notify("READY=1")
                    await keeping.keep(models)
            except DiscoverydError as fault:
                # Kept, since the task group would wrap it.
                failure = fault
                tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
