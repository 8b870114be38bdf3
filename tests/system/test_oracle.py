"""The verdicts of the real Dynamo, row by row: the same files in a store, the same newcomer."""

import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.system.dropping import DATA, Host, envelope, store_name, write

ROWS: list[dict[str, Any]] = json.loads((DATA / "vectors" / "oracle.json").read_bytes())["rows"]

NEWCOMER = "abcffff"
ACCEPT, REFUSE, INVALID = "accept", "reject", "invalid"

DEVIATIONS = {
    "bb-both-empty-name": (INVALID, "an empty name is invalid"),
    "al-new-empty-alias": (INVALID, "an empty alias is invalid"),
    "ae-existing-alias-empty-new-name-empty": (INVALID, "an empty name is invalid"),
    "bad-no-display-name": (ACCEPT, "a card that cannot be judged harms nobody"),
    "bad-display-name-int": (ACCEPT, "a card that cannot be judged harms nobody"),
    "bad-card-json-null": (ACCEPT, "a card that cannot be judged harms nobody"),
    "bad-dup-keys-toplevel": (REFUSE, "of duplicate members of an envelope, too, the last counts"),
    "mu-two-incompat-bases-preexisting-then-third-eq-first": (
        ACCEPT,
        "of two cards that do not suit each other one is refused, and then refuses nobody",
    ),
}
"""What discoveryd says instead, and why."""

OTHER_ENDPOINT = {
    # The newcomer came to the endpoint that the body names, not to the file name's.
    "endpoint-prefix-not-confused": "e162",
}


def content_of(entry: dict[str, Any]) -> bytes:
    if "raw" in entry:
        raw: str = entry["raw"]
        head, deep, tail = raw.partition("[[")
        if deep:  # these rows were cut when they were recorded
            depth = (deep + tail).count("[")
            raw = head + "[" * depth + "]" * depth + "}}"
        return raw.encode("latin-1")
    body = entry["body"]
    return body.encode("latin-1") if isinstance(body, str) else json.dumps(body).encode()


def file_of(entry: dict[str, Any]) -> str:
    """Return the file name; the rows of raw text do not tell it, but their text the endpoint."""
    if "raw" not in entry:
        name: str = entry["file"]
        return name
    found = re.search(r'"endpoint":"(e\d+)"', entry["raw"])
    return store_name(f"ns/oc/{found[1] if found else 'e0'}/5")


def endpoint_of(row: dict[str, Any]) -> str:
    if row["id"] in OTHER_ENDPOINT:
        return OTHER_ENDPOINT[row["id"]]
    for entry in row["existing"]:
        if isinstance(entry, dict):
            parts = unquote(file_of(entry)).split("/")
            return parts[2] if len(parts) > 2 else entry["body"]["endpoint"]
    return "e0"


def lay(host: Host, row: dict[str, Any], entry: Any) -> Path:
    if entry == "directory":
        path = host.mdc / store_name(f"ns/oc/{endpoint_of(row)}/5")
        path.mkdir()
        return path
    path = host.mdc / file_of(entry)
    write(path, content_of(entry))
    if row["id"].startswith("unreadable"):
        path.chmod(0 if os.geteuid() == 0 else stat.S_IRUSR)  # the row's point: root reads it
    if row["id"] == "future-mtime":
        later = time.time() + 100_000
        os.utime(path, (later, later))
    return path


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_verdict_of_the_real_dynamo(host: Host, row: dict[str, Any]) -> None:
    for entry in row["existing"]:
        lay(host, row, entry)
        host.client.sync()
    asked = row["newcomer"]
    suffix = {} if asked["model_suffix"] is None else {"model_suffix": asked["model_suffix"]}
    at = f"ns/oc/{endpoint_of(row)}/{NEWCOMER}"
    key = "/".join([at, *suffix.values()])
    verdict = host.put_in_store(key, envelope(at, asked["card_json"], **suffix))

    expected = DEVIATIONS.get(row["id"], (row["verdict"], ""))[0]
    said = {"refused": REFUSE, "invalid": INVALID}.get(verdict.standing, ACCEPT)
    assert said == expected, verdict
    if expected == REFUSE:
        (reason,) = verdict.reasons
        assert reason.against
        assert set(reason.against) <= {str(host.mdc / file_of(e)) for e in row["existing"]}


def test_every_deviation_is_one() -> None:
    verdicts = {row["id"]: row["verdict"] for row in ROWS}
    assert all(verdicts[row] != said for row, (said, _) in DEVIATIONS.items())
