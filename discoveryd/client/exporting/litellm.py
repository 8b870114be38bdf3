r"""LiteLLM's `model_list`: an entry for each name and worker that answers it, as YAML.

Theory
======

Names, aliases and adapters are entries of their own, since workers answer an alias only if they
have it. Entries of one `model_name` share its requests.

`model` is `openai/` and what the worker is asked for. `api_key` is a placeholder: without one,
LiteLLM would send workers what its environment holds for OpenAI.

LiteLLM gives weight 0 to an entry that has none, if another one of the name has. So all of a name
have one, or none.

**Safety.** Strings stand in double quotes, printable characters as they are and all others, line
breaks of YAML among them, as `\u` and `\U` escapes. That leaves the two meanings that LiteLLM
itself finds in names: `*` makes one a pattern, which would take the requests for others, and what
begins with `os.environ/` is replaced by a variable of its environment. Such names are left out.
"""

from collections.abc import Iterator

from discoveryd.client.exporting.served import Served, address, comment, weight
from discoveryd.interface import Worker

_BMP_END = 0xFFFF
_SPECIAL = '"\\'
_ENVIRONMENT = "os.environ/"


def text(served: Served) -> str:
    """Return a configuration for LiteLLM that has just the `model_list`."""
    lines = [line for route in served.routes() for line in _entries(*route)]
    head = [
        comment("Written by discoveryctl export litellm: what is changed here is lost."),
        "model_list:" if any(not line.startswith("#") for line in lines) else "model_list: []",
    ]
    return "".join(f"{line}\n" for line in head + lines)


def _entries(name: str, asked_as: str, workers: tuple[Worker, ...]) -> Iterator[str]:
    """Yield the lines of a name."""
    if "*" in name or "*" in asked_as:
        yield comment(f"left out: {name}: to LiteLLM a name with * is a pattern")
        return
    if name.startswith(_ENVIRONMENT):
        yield comment(f"left out: {name}: to LiteLLM it is a variable of its environment")
        return
    accepting = [worker for worker in workers if worker.accepting]
    weighted = any(weight(worker) is not None for worker in accepting)
    for worker in accepting:
        if address(worker.url) is None:
            url = worker.url or "it has no url"
            yield comment(f"left out: {worker.key}: LiteLLM cannot ask it: {url}")
            continue
        base = (worker.url or "").rstrip("/")
        yield f"  - model_name: {_quoted(name)}"
        yield "    litellm_params:"
        yield f"      model: {_quoted(f'openai/{asked_as}')}"
        yield f"      api_base: {_quoted(f'{base}/v1')}"
        yield '      api_key: "none"'
        if weighted:
            yield f"      weight: {weight(worker) or 1}"


def _quoted(string: str) -> str:
    """Return a YAML scalar that is read as just this string."""
    return f'"{"".join(map(_escaped, string))}"'


def _escaped(char: str) -> str:
    if char in _SPECIAL:
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= _BMP_END else f"\\U{code:08x}"
