"""The command `discoveryd`: flags in, exit status out. What is served is decided elsewhere.

Exit status: 0 ended as asked; 1 could not start; 2 usage or configuration.
"""

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from functools import partial

import click

from discoveryd import __version__
from discoveryd.daemon import logs, service
from discoveryd.daemon.configuration import config
from discoveryd.daemon.configuration.settings import LOG_LEVELS
from discoveryd.daemon.directories import make_place
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.systemd import activation, watchdog
from discoveryd.daemon.systemd.notify import Notifier


def main(args: Sequence[str] | None = None) -> int:
    """Run the command with `args` (those of the process by default); return its exit status."""
    try:
        status = command.main(args, prog_name="discoveryd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        logs.complain(f"{error.format_message()} See discoveryd --help.")
        return error.exit_code
    except ConfigError as error:
        logs.complain(str(error))
        return 2
    return status if isinstance(status, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Answer which workers on this host serve a model name, and if none, why not."""


@command.command()
@click.option(
    "--cards",
    metavar="DIR",
    multiple=True,
    type=click.Path(readable=False),
    help="A drop directory of card files. May be given several times.",
)
@click.option(
    "--dynamo",
    metavar="STORE",
    multiple=True,
    type=click.Path(readable=False),
    help="A Dynamo file store (what DYN_FILE_KV names). May be given several times.",
)
@click.option("--socket", metavar="PATH", type=click.Path(), help="Where to listen.")
@click.option(
    "--socket-mode",
    metavar="MODE",
    help="Who may connect, in octal.  [default: 0600, or 0660 with a group]",
)
@click.option("--socket-group", metavar="GROUP", help="The group that the socket belongs to.")
@click.option(
    "--http",
    metavar="WHERE",
    help="Answer HTTP, too, for reading only: at a path, or at 127.0.0.1:PORT.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(),
    help="What must outlive a restart is kept there; none: nothing is.  [default: beside the"
    " socket, or in $STATE_DIRECTORY]",
)
@click.option(
    "--config", "file", metavar="FILE", type=click.Path(), help="A configuration file (TOML)."
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    help="The least level that is logged.  [default: info]",
)
def serve(  # noqa: PLR0913 - one a flag, all by keyword
    *,
    cards: tuple[str, ...],
    dynamo: tuple[str, ...],
    socket: str | None,
    socket_mode: str | None,
    socket_group: str | None,
    http: str | None,
    state: str | None,
    file: str | None,
    log_level: str | None,
) -> int:
    """Watch the drop directories and answer on the socket, until SIGINT or SIGTERM.

    SIGHUP reads the configuration again, as discoveryctl reload does.

    Flags win over the variables DISCOVERYD_CARDS and DISCOVERYD_SOCKET, these over the
    configuration file. By default both are in /run/discoveryd for root, else in
    $XDG_RUNTIME_DIR/discoveryd.
    """
    sys.excepthook = logs.crashed
    with service.hangups_held():
        notifier = Notifier.from_environment(os.environ)
        watchdog_seconds = watchdog.interval_from_environment(os.environ)
        try:
            passed = activation.passed(os.environ)
            configure = partial(
                config.configure,
                cards=cards,
                dynamo=dynamo,
                socket=socket,
                socket_mode=socket_mode,
                socket_group=socket_group,
                http=http,
                state=state,
                log_level=log_level,
                file=file,
                passed_socket=passed.path,
                passed_mode=passed.mode,
            )
            told = configure()
            logs.set_up(told.log_level)
            _allow_open_files()
            if told.place is not None:
                make_place(told.place, os.geteuid())
            manager = service.Manager(notifier, watchdog_seconds, passed)
            return service.run(told, configure, manager)
        except* StartError as failures:
            for failure in _leaves(failures):
                logs.complain(str(failure))
    return 1


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leaves(group: BaseExceptionGroup[StartError]) -> Iterator[StartError]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(inner)
        else:
            yield inner
