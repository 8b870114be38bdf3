"""Whether we ourselves are in a container, where paths, processes and users mean something else."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.doctor.findings import Finding, note, ok

_MARKS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_GROUP = re.compile(r"/(docker|kubepods|libpod|lxc)[-./](?!service)")
_RUN, _CARDS = "/run/discoveryd", "/srv/cards"


class Sight(NamedTuple):
    """What says that this is a container; None for nothing."""

    sign: str | None


def look_for_container(environ: Mapping[str, str]) -> Sight:
    """Look for what runtimes of containers leave behind. Raises nothing."""
    sign = next((f"{mark} ({name})" for mark, name in _MARKS.items() if Path(mark).exists()), None)
    if sign is None and environ.get("container"):
        sign = f"container={environ['container']}"
    if sign is None:
        with suppress(OSError):
            groups = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
            of_runtime = _GROUP.search(groups)
            sign = None if of_runtime is None else f"a control group of {of_runtime[1]}"
    return Sight(sign)


def judge_container(sight: Sight, *, found: bool) -> list[Finding]:
    """Return what a container means here; `found`: a daemon answers."""
    if sight.sign is None:
        return [ok("this is no container")]
    reach = () if found else ("mount the directories of its socket and of the cards, as they are:",)
    mount = () if found else (f"docker run -v {_RUN}:{_RUN}:z -v {_CARDS}:{_CARDS}:z ...",)
    return [
        note(
            "this is a container",
            f"says {sight.sign}",
            *reach,
            *mount,
            "where the daemon is the host's:",
            "the card's url is as the host sees it, with the published port",
            'the card\'s liveness is {"held": true}, not a pid, which the host does not know',
            "DISCOVERYD_CARDS says where the drop directory is mounted, if at another path",
        )
    ]
