"""Cases from the field, by their rows: odd content, names that look alike, lists that must answer.

Rows that other tests cover are named there: shapes and numbers of bad cards in test_bad_input, ways
to write them in test_watching_writes, the socket's place in test_socket_owner, beginning and end in
test_lifecycle.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from discoveryd.client import NoSuchModel
from discoveryd.interface import Verdict
from tests.system.conftest import Start
from tests.system.dropping import Host, Json
from tests.system.lives import Lives
from tests.system.raw import Raw
from tests.system.running import REPOSITORY, environment, until


def lines_about(host: Host, path: Path) -> list[str]:
    return [line for line in host.daemon.log.split("\n") if str(path) in line]


# Content


def test_a_slip_in_the_name_of_a_required_member_is_told_with_what_was_meant(served: Host) -> None:
    """B05: in the verdict and in the log, with the file."""
    path = served.cards / "slip.json"
    verdict = served.put("slip", {"served_nam": "m"})
    (reason,) = verdict.reasons
    assert (verdict.standing, verdict.file) == ("invalid", str(path))
    assert (reason.rule, reason.field) == ("missing", "$.display_name")
    assert verdict.warnings == ("$.served_nam: not a known member; did you mean display_name?",)
    (line,) = lines_about(served, path)
    assert "$.display_name is missing" in line


def test_an_unknown_member_is_kept_and_is_no_matter(host: Host) -> None:
    """B05: the card serves, without a warning."""
    verdict = host.put("extra", {"display_name": "m", "from_the_future": {"any": ["thing", None]}})
    assert (verdict.standing, verdict.warnings, verdict.reasons) == ("serving", (), ())


def test_a_list_of_cards_is_told_everywhere_and_logged_once(served: Host) -> None:
    """B07."""
    path = served.cards / "cards.json"
    verdict = served.put(
        "cards", json.dumps([{"display_name": "a"}, {"display_name": "b"}]).encode()
    )
    assert (verdict.standing, verdict.reasons[0].rule) == ("invalid", "not_object")
    for _ in range(3):
        path.touch()
        assert served.client.sync().standings == {"serving": 1, "invalid": 1}
    assert served.client.explain().verdicts == (verdict,)
    assert served.client.status().standings == {"serving": 1, "invalid": 1}
    assert len(lines_about(served, path)) == 1


def offline(path: Path) -> tuple[int, Verdict]:
    """Return the exit status and the verdict of `discoveryctl check` without a daemon."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from discoveryd.client.ctl.cli import main; main()",
            "check",
            "--json",
            str(path),
        ],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        check=False,
        timeout=30,
    )
    (check,) = json.loads(done.stdout)["checks"]
    return done.returncode, msgspec.convert(check["verdict"], Verdict)


def essence(verdict: Verdict) -> tuple[object, ...]:
    """Return what may not depend on who is asked, or when."""
    return verdict.standing, verdict.model, verdict.names, verdict.reasons, verdict.warnings


@pytest.fixture
def lives(start: Start) -> Iterator[Lives]:
    """Give a host whose daemon may be killed and started again."""
    lives = Lives(start)
    yield lives
    lives.client.close()


@pytest.mark.parametrize(
    ("content", "member", "names"),
    [
        (b'{"display_name": "a", "display_name": "b"}', "display_name", ("b",)),
        (b'{"display_name": "b", "aliases": ["x"], "aliases": ["y"]}', "aliases", ("b", "y")),
    ],
)
def test_duplicate_members_get_one_verdict_from_everyone(
    lives: Lives, content: bytes, member: str, names: tuple[str, ...]
) -> None:
    """B08: the last one counts, with a warning: offline, by Check, dropped, and after a restart."""
    asked = lives.client.check(msgspec.Raw(content)).verdict
    dropped = lives.host.put("a", content)
    path = lives.cards / "a.json"
    status, alone = offline(path)
    lives.again()
    (later,) = lives.client.explain(str(path)).verdicts
    assert (dropped.standing, dropped.names) == ("serving", names)
    assert dropped.warnings == (f"$.{member}: given more than once, so the last one counts",)
    assert status == 0
    assert essence(asked) == essence(dropped) == essence(alone) == essence(later)


NUMBERS = [
    ("context_length", b"NaN", "NaN"),
    ("weight", b"NaN", "NaN"),
    ("weight", b"-Infinity", "-Infinity"),
    ("port", b"1e999", "too large"),
    ("port", b"9" * 5_000, "4,300 digits"),
    ("context_length", b"8000.0", "$.context_length"),
    ("context_length", b"true", "$.context_length"),
    ("context_length", b"18446744073709551617", "$.context_length"),
    ("instance", b"18446744073709551617", "$.instance"),
]


@pytest.mark.parametrize(("member", "number", "said"), NUMBERS)
def test_a_number_that_cannot_be_kept_is_told_and_never_bent(
    served: Host, member: str, number: bytes, said: str
) -> None:
    """B10."""
    verdict = served.put("odd", b'{"display_name": "odd", "%s": %s}' % (member.encode(), number))
    (reason,) = verdict.reasons
    assert (verdict.standing, verdict.serves) == ("invalid", "nothing")
    assert said in reason.message


def test_a_number_beyond_what_a_double_holds_is_kept_whole(host: Host) -> None:
    """B10."""
    host.put("big", {"display_name": "big", "instance": 2**64 - 1, "context_length": 2**32 - 1})
    (worker,) = host.client.resolve("big").workers
    assert (worker.instance, worker.context_length) == ("f" * 16, 2**32 - 1)


UNPRINTABLE = [
    ("name-nul", b'{"display_name": "a\\u0000b"}'),
    ("name-newline", b'{"display_name": "a\\nb"}'),
    ("name-long", b'{"display_name": "' + b"x" * (1 << 19) + b'"}'),
    ("bytes-in-unknown-member", b'{"display_name": "m", "x": "\xff"}'),
    ("bytes-in-unknown-key", b'{"display_name": "m", "\xff": 1}'),
    ("surrogate-bytes", b'{"display_name": "m", "x": "\xed\xa0\x80"}'),
    ("newline-in-key", b'{"display_name": 7, "alia\\nses": 1, "display_name\\u0000": 2}'),
    ("newline-in-label", b'{"display_name": "m", "labels": {"a\\nERROR: b\\u001b[31m": 1}}'),
]


@pytest.mark.parametrize("content", [c for _, c in UNPRINTABLE], ids=[n for n, _ in UNPRINTABLE])
def test_what_cannot_be_printed_breaks_neither_answers_nor_log(
    served: Host, content: bytes
) -> None:
    """B11: an answer is UTF-8 and short, a record is one line."""
    path = served.cards / "unprintable.json"
    before = served.daemon.log
    assert served.put("unprintable", content).standing == "invalid"
    with Raw(served.daemon.socket) as raw:
        reply = raw.ask("Explain", {"file": str(path)})
    # Half a surrogate pair would not encode.
    assert len(json.dumps(reply, ensure_ascii=False).encode()) < 4_096
    (line,) = served.daemon.log.removeprefix(before).splitlines()
    assert str(path) in line
    assert line.isprintable()
    assert len(line) < 4_096


def test_a_name_that_nobody_may_have_can_be_asked_for(served: Host) -> None:
    """B11."""
    for name in ("a\0b", "a\nb", "", "x" * (1 << 19)):
        with pytest.raises(NoSuchModel):
            served.client.resolve(name)


# Names


def test_a_card_whose_name_looks_like_a_temporary_file_s_is_kept(host: Host) -> None:
    """B16: while others write by the documented rule, under names that are much alike."""

    def rewrite(name: str, beside: str) -> None:
        for number in range(50):
            card = {"display_name": name, "url": f"http://127.0.0.1:{number + 1}"}
            (host.cards / beside).write_text(json.dumps(card))
            (host.cards / beside).rename(host.cards / f"{name}.json")

    places = {"x": ".x.tmp", "x.tmp": ".x.tmp.tmp", "x.tmp.tmp": ".x.tmp.tmp.tmp", ".x": "x.tmp"}
    # A name with a leading dot is no card file's: it is a temporary file like any other.
    writers = [threading.Thread(target=rewrite, args=pair) for pair in places.items()]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert host.client.sync().standings == {"serving": 3}
    for name in ("x", "x.tmp", "x.tmp.tmp"):
        (worker,) = host.client.resolve(name).workers
        assert (worker.file, worker.url) == (
            f"{host.cards}/{name}.json",
            "http://127.0.0.1:50",
        )
    assert host.workers(".x") is None


ALIKE = ["org/model", "org_model", "org-model", "org%2Fmodel", "org%2fmodel", "Org/model"]


@pytest.mark.parametrize("where", ["url", "source"])
def test_names_that_look_alike_are_different_models(host: Host, where: str) -> None:
    """B17: also on one server, where only what is derived from the name tells keys apart."""
    for number, name in enumerate(ALIKE):
        card: Json = {"display_name": name, "url": "http://127.0.0.1:1"}
        if where == "source":
            card |= {"source_path": name, "display_name": f"m{number}"}
        assert host.put(f"card-{number}", card).standing == "serving"
    keys = set()
    for number, name in enumerate(ALIKE):
        reply = host.client.resolve(name if where == "url" else f"m{number}")
        (worker,) = reply.workers
        assert worker.file == f"{host.cards}/card-{number}.json"
        keys.add(worker.key)
    assert len(keys) == len(ALIKE)


# Operation


def test_lists_answer_whatever_became_of_single_cards(host: Host) -> None:
    """B106: one odd card, one rejected, one refused, one torn, one stale."""
    host.put("odd", {"display_name": "odd", "aliases": "x", "needs": {}, "worker_type": 9})
    host.put("bad", b'{"display_name": 7}')
    host.put("first", {"display_name": "first", "component": "c", "instance": "1"})
    host.put("refused", {"display_name": "second", "component": "c", "instance": "2"})
    host.put("torn", {"display_name": "torn"})
    host.put("torn", b'{"display_name": "to')
    stale = host.cards / ".stale"
    stale.write_text('{"display_name": "stale", "liveness": {"lease_seconds": 1}}')
    os.utime(stale, (1_000_000_000, 1_000_000_000))
    stale.rename(host.cards / "stale.json")
    expected = {
        "bad.json": "invalid",
        "first.json": "serving",
        "odd.json": "serving",
        "refused.json": "refused",
        "stale.json": "expired",
        "torn.json": "invalid",
    }
    until(lambda: host.standings() == expected, "the lease is over")
    names = ["first", "odd", "torn"]
    assert sorted(line.name for line in host.client.list().names) == names
    assert sorted(worker.model for worker in host.client.workers().workers) == names
    assert host.client.status().names == len(names)
    with Raw(host.daemon.socket) as raw:
        for method, member in (("List", "names"), ("ListWorkers", "workers")):
            reply: dict[str, Any] = raw.ask(method, more=True)["parameters"]
            assert len(reply[member]) == len(names)
