"""What failures mean: the words for people, what to do about them, and the exit status."""

from discoveryd.client.ctl.advice import nobody_serves
from discoveryd.client.ctl.session import NO, NO_DAEMON, TIMED_OUT, Session, complain
from discoveryd.client.errors import (
    BadReply,
    CallRefused,
    ConnectionLost,
    DiscoverydError,
    NoDaemon,
    NoSuchFile,
    NoSuchModel,
    Timeout,
)


def tell(session: Session, error: Exception) -> int | None:
    """Say what went wrong and what to do about it; return the exit status.

    None, and nothing said, where the error is none of ours.
    """
    match error:
        case NoDaemon():
            where = "name its socket with --socket or DISCOVERYD_SOCKET"
            complain(*error.lines, f"Start one with discoveryd serve, or {where}.")
            return NO_DAEMON
        case Timeout():
            complain(str(error), "Give it more time with --timeout, or see whether it is stuck.")
            return TIMED_OUT
        case CallRefused():
            if session.json:
                session.show_json({"error": error.name, "parameters": error.parameters})
            complain(str(error), *_advice(error))
            return NO
        case ConnectionLost():
            complain(str(error), "It was stopped or restarted: try again.")
            return NO_DAEMON
        case BadReply():
            complain(str(error), "Another program, or another version of it, may listen there.")
            return NO_DAEMON
        case DiscoverydError():
            complain(*str(error).splitlines())
            return NO
        case _:
            return None


def _advice(error: CallRefused) -> list[str]:
    match error:
        case NoSuchModel():
            return nobody_serves(error)
        case NoSuchFile():
            return [
                "Card files end in .json, do not begin with a dot, and lie in one of the",
                "directories that status lists.",
            ]
        case _:
            return []
