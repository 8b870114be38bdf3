r"""nginx: an upstream for each set of workers, and a map from `$discoveryd_model` to upstreams.

Theory
======

**The map** tells names apart by regular expressions, because the plain strings of an nginx map
ignore case, and names do not: `Chat` is not `chat`. Each is anchored at both ends. A name that
nobody serves is mapped to nothing, so that `if ($discoveryd_upstream = "")` can answer 404.

**One set, one upstream**: nginx counts connections and failures by upstream, so the names of the
same workers share one. Draining workers stay in it as `down`. A name of which no other worker is
left is not mapped.

**One bad line keeps nginx from starting,** so only what it certainly takes is written. It resolves
host names when it starts, and does not start where one of them is not found: but for localhost,
workers have to have addresses. A socket's path has to fit into an address. In a quoted word of its
configuration only quotes and backslashes mean something, and in a regular expression no letter,
digit or `-_/:@`; all else is written as `\xHH`, byte by byte. So a name is always one word, and
never an expression.

**Left out**, each with a comment: operator aliases, since nginx passes on the request as it is and
no worker answers them; workers with https, which would need a `proxy_pass` of their own; workers
whose url has a path, for which an upstream has no place.
"""

from collections.abc import Iterator

from discoveryd.client.exporting.served import Route, Served, address, comment, weight
from discoveryd.interface import Worker

_HEAD = """\
# Written by discoveryctl export nginx: what is changed here is lost. Include it in http { },
# with a server that says what $discoveryd_model is. By a header of the request, for one:
#
#     server {
#         listen 127.0.0.1:8080;
#         set $discoveryd_model $http_x_model;
#         location /v1/ {
#             if ($discoveryd_upstream = "") { return 404; }
#             proxy_pass http://$discoveryd_upstream;
#         }
#     }
"""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/:@")
_PLAIN_IN_PATHS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/.@+")
_LONGEST_PATH_BYTES = 107
"""A socket's address holds 108, one of which ends the path."""


def text(served: Served) -> str:
    """Return what to include in nginx's block `http`."""
    notes: dict[str, None] = {}
    upstreams: dict[tuple[str, ...], str] = {}
    lines: list[str] = []
    for route in served.routes():
        if route.name != route.asked_as:
            notes[f"left out: {route.name}: workers answer it as {route.asked_as} only"] = None
            continue
        servers = tuple(_servers(route, notes))
        if all(server.endswith(" down;") for server in servers):
            continue
        upstream = upstreams.setdefault(servers, f"discoveryd_{len(upstreams)}")
        lines.append(f'    "~\\A{_expression(route.name)}\\z" {upstream};')
    blocks = [
        "\n".join((f"upstream {upstream} {{", *servers, "}\n"))
        for servers, upstream in upstreams.items()
    ]
    table = ["map $discoveryd_model $discoveryd_upstream {", '    default "";', *lines, "}\n"]
    said = "".join(f"{comment(note)}\n" for note in notes)
    return "\n".join([_HEAD + said, *blocks, "\n".join(table)])


def _servers(route: Route, notes: dict[str, None]) -> Iterator[str]:
    """Yield the lines of the route's workers, each place once; note who is left out."""
    seen: set[str] = set()
    for worker in route.workers:
        place, problem = _place(worker)
        if problem:
            notes[f"left out: {worker.key}: {problem}"] = None
        elif place not in seen:
            seen.add(place)
            given = weight(worker)
            share = "" if given is None else f" weight={given}"
            yield f"    server {place}{share}{'' if worker.accepting else ' down'};"


def _place(worker: Worker) -> tuple[str, str]:
    """Return where nginx finds the worker, or why it cannot: one of them is empty."""
    url = worker.url or ""
    if url.startswith("unix://"):
        path = url.removeprefix("unix://")
        if not _PLAIN_IN_PATHS.issuperset(path):
            return "", f"the socket's path has more than letters, digits and -_/.@+: {url}"
        if len(path) > _LONGEST_PATH_BYTES:
            return "", f"the socket's path is longer than {_LONGEST_PATH_BYTES} bytes: {url}"
        return f"unix:{path}", ""
    found = address(url)
    if found is None or found.scheme != "http":
        return "", f"an upstream has http:// and unix:// only: {url or 'it has no url'}"
    if found.path:
        return "", f"an upstream has no place for a path: {url}"
    if not found.numeric and found.host != "localhost":
        return "", f"nginx does not start where a host is not found, so give its address: {url}"
    return found.authority, ""


def _expression(name: str) -> str:
    """Return a regular expression that matches just this name, for use between double quotes."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in name.encode())
