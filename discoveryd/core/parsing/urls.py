"""The member `url`: where clients reach a worker.

A URL is kept as it was written. Nothing here may open, resolve or rewrite one.
"""

import re

from discoveryd.core.parsing.findings import Findings, one_of
from discoveryd.core.text import has_control

SCHEMES = ("http", "https", "grpc", "grpcs", "unix")
"""What a card may give; Dynamo's own transports come from its store and are not checked."""

_LAST_PORT = 65535
_IPV6 = frozenset("0123456789abcdefABCDEF:.")
_is_usual = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?(?:/[A-Za-z0-9_.~/-]*)?"
).fullmatch
"""Whether a url is one of those that need no closer look, which are nearly all."""


def read_url(members: dict[str, object], findings: Findings) -> str | None:
    """Return the card's own url; None if it gives none or a faulty one, which is reported."""
    url = members.get("url")
    if url is None:
        return None
    if not isinstance(url, str):
        findings.wrong_type("$.url", url, "a string")
        return None
    problem = _problem(url)
    if problem is not None:
        # Everyone may read reasons: a password is not repeated.
        findings.fault("bad_url", "$.url", problem, found=None if "@" in url else url)
        return None
    if url.rstrip("/").endswith("/v1"):
        findings.warn("$.url", "ends in /v1, but a client appends /v1 itself")
    return url


def location(url: str) -> str:
    """Return the authority and path of a valid url, without trailing slashes."""
    return url.partition("://")[2].rstrip("/")


def _problem(url: str) -> str | None:
    if _is_usual(url):
        return None
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        return f"must begin with {one_of([f'{known}://' for known in SCHEMES])}"
    if url.split() != [url] or has_control(url):
        return "has white space or control characters: percent-encode them"
    if "?" in rest or "#" in rest:
        return "has a query or a fragment: give only the base to which a client appends /v1"
    if scheme == "unix":
        if not rest.startswith("/") or not rest.strip("/"):
            return "must name a socket by its absolute path: unix:///run/worker.sock"
        return None
    return _authority_problem(rest.partition("/")[0])


def _authority_problem(authority: str) -> str | None:
    if "@" in authority:
        return "has a user or password: everyone may read cards, so give none"
    if authority.startswith("["):
        host, bracket, tail = authority[1:].partition("]")
        if not bracket or host.count(":") < 2 or not _IPV6.issuperset(host):  # noqa: PLR2004  # "::"
            return "has a broken IPv6 address: write it as [::1]"
        colon, port = tail[:1], tail[1:]
        if colon not in ("", ":"):
            return "has something between the IPv6 address and the port"
    else:
        host, colon, port = authority.partition(":")
    if not host:
        return "names no host"
    if not colon:
        return None
    if port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= _LAST_PORT:  # noqa: PLR2004  # digits
        return None
    return f"must have a port from 1 to {_LAST_PORT} after the host's colon"
