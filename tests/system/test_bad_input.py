"""Bad files: each is told what is wrong with it, and no other card notices."""

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from discoveryd.interface import Verdict
from tests.system.conftest import Start
from tests.system.dropping import GOOD, Host, envelope, instance_record, store_name, write
from tests.system.running import without


def flat(**members: object) -> bytes:
    return json.dumps({"display_name": "bad"} | members).encode()


NOT_JSON = [
    ("empty", b""),
    ("blank", b" \n"),
    ("torn", b'{"display_name": "ba'),
    ("garbage", b"display_name: bad\n"),
    ("something-after-the-end", b'{"display_name": "bad"} x'),
    ("two-objects", b'{"display_name": "bad"}{"display_name": "bad"}'),
    ("single-quotes", b"{'display_name': 'bad'}"),
    ("comment", b'{"display_name": "bad"} // no'),
    ("not-a-number", b'{"display_name": "bad", "context_length": NaN}'),
    ("infinity", b'{"display_name": "bad", "context_length": -Infinity}'),
    ("bom", b'\xef\xbb\xbf{"display_name": "bad"}'),
    ("utf-16", '{"display_name": "bad"}'.encode("utf-16")),
    ("latin-1", '{"display_name": "bäd"}'.encode("latin-1")),
    ("nul-bytes", b'{"display_name": "bad"}' + b"\0" * 100),
    ("only-nul-bytes", b"\0" * 4096),
    ("nul-in-a-string", b'{"display_name": "b\0ad"}'),
    ("control-character-in-a-string", b'{"display_name": "b\x1bad"}'),
    ("lone-surrogate", b'{"display_name": "bad", "user_data": "\\ud800"}'),
    ("binary", bytes(range(256)) * 16),
]
SHAPELESS = [
    ("too_deep", b'{"display_name": "bad", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    ("too_deep", b"[" * 500_000),
    ("too_deep", b'{"x":' * 100_000),
    ("too_large", b'{"display_name": "bad", "x": "' + b"x" * (2 << 20) + b'"}'),
    ("too_large", b" " * (1 << 20) + flat()),
    ("not_object", b'["display_name", "bad"]'),
    ("not_object", b'"bad"'),
    ("not_object", b"null"),
    ("not_object", b"7"),
]
DIGITS = b"9" * 5_000
MEMBERS = [
    ("$.display_name", b"{}"),
    ("$.display_name", b'{"display_name": 7}'),
    ("$.display_name", b'{"display_name": null}'),
    ("$.display_name", b'{"display_name": ""}'),
    ("$.display_name", b'{"display_name": "b\\u0000ad"}'),
    ("$.display_name", flat(display_name="b\x1b[31mad")),
    ("$.display_name", flat(display_name="x" * 513)),
    ("$.aliases[1]", flat(aliases=["fine", ""])),
    ("$.aliases[0]", flat(aliases=["b\nad"])),
    ("$.aliases[0]", flat(aliases=["ä" * 257])),
    ("$.namespace", flat(namespace="a/b")),
    ("$.component", flat(component="")),
    ("$.endpoint", flat(endpoint="\x7f")),
    ("$.instance", flat(instance=-1)),
    ("$.instance", flat(instance=2**64)),
    ("$.instance", b'{"display_name": "bad", "instance": ' + DIGITS + b"}"),
    ("$.url", flat(url=7)),
    ("$.url", flat(url="127.0.0.1:8000")),
    ("$.url", flat(url="ftp://127.0.0.1")),
    ("$.url", flat(url="http://user:secret@127.0.0.1")),
    ("$.url", flat(url="http://127.0.0.1:99999")),
    ("$.labels", flat(labels=["zone"])),
    ("$.labels.weight", flat(labels={"weight": 3})),
    ("$.accepting", flat(accepting="yes")),
    ("$.liveness", flat(liveness=10)),
    ("$.liveness.lease_seconds", flat(liveness={"lease_seconds": 0})),
    ("$.liveness.pid", flat(liveness={"pid": "1"})),
    ("$.kv_cache_block_size", flat(kv_cache_block_size=2**32)),
    ("$.kv_cache_block_size", b'{"display_name": "bad", "kv_cache_block_size": ' + DIGITS + b"}"),
    ("$.context_length", flat(context_length="2048")),
    ("$.runtime_config.context_length", flat(runtime_config={"context_length": -1})),
    ("$.source_path", flat(lora={"name": "bad"}, url="http://127.0.0.1:1")),
    ("$.url", flat(lora={"name": "bad"}, source_path="/models/tiny")),
    ("$.card_json", b'{"type": "Model", "card_json": null}'),
    ("$.card_json.display_name", json.dumps(envelope("a/b/c/1", {})).encode()),
    ("$.type", json.dumps(envelope("a/b/c/1", {"display_name": "bad"}, type="Endpoint")).encode()),
    ("$.instance_id", json.dumps(envelope("a/b/c/1", {}, instance_id=1.5)).encode()),
]


def judge(host: Host, content: bytes) -> Verdict:
    """Drop the content as bad.json; return the verdict once it is what every asker gets."""
    verdict = host.put("bad", content)
    assert (verdict.standing, verdict.serves) == ("invalid", "nothing")
    assert verdict.file == str(host.cards / "bad.json")
    assert verdict.reasons
    assert all(reason.message for reason in verdict.reasons)
    assert host.client.explain().verdicts == (verdict,)
    assert verdict.file in host.daemon.log
    assert host.daemon.log.isprintable() or _only_lines(host.daemon.log)
    return verdict


def _only_lines(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("content", [c for _, c in NOT_JSON], ids=[name for name, _ in NOT_JSON])
def test_what_is_not_json_is_invalid(served: Host, content: bytes) -> None:
    """B10, B11."""
    (reason,) = judge(served, content).reasons
    assert (reason.rule, reason.field) == ("not_json", "$")


@pytest.mark.parametrize(("rule", "content"), SHAPELESS)
def test_what_is_too_much_or_no_object_is_invalid(served: Host, rule: str, content: bytes) -> None:
    """B06, B07."""
    (reason,) = judge(served, content).reasons
    assert reason.rule == rule


@pytest.mark.parametrize(("field", "content"), MEMBERS)
def test_a_faulty_member_is_named_by_its_path(served: Host, field: str, content: bytes) -> None:
    """B05, B10, B11."""
    fields = [reason.field for reason in judge(served, content).reasons]
    # A number of 5,000 digits is more than the decoder reads; which member it is, it does not say.
    assert field in fields or (DIGITS in content and fields == ["$"])


def test_all_faults_are_told_at_once_and_passwords_are_not_repeated(served: Host) -> None:
    content = flat(aliases=[""], url="http://user:secret@h", labels={"a": 1}, context_length=-1)
    verdict = judge(served, content)
    fields = {reason.field for reason in verdict.reasons}
    assert fields == {"$.aliases[0]", "$.url", "$.labels.a", "$.context_length"}
    assert "secret" not in repr(verdict)
    assert "secret" not in served.daemon.log


def make_directory(path: Path) -> None:
    path.mkdir()


def make_link(path: Path) -> None:
    path.symlink_to(path.with_name("good.json"))


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


OTHER_KINDS: list[tuple[Callable[[Path], None], str]] = [
    (make_directory, "not_a_file"),
    (os.mkfifo, "not_a_file"),
    (make_socket, "not_a_file"),
    (make_link, "symbolic_link"),
    (make_dangling_link, "symbolic_link"),
    (make_endless, "symbolic_link"),
]


@pytest.mark.parametrize(("make", "rule"), OTHER_KINDS)
def test_what_is_no_regular_file_is_invalid(
    served: Host, make: Callable[[Path], None], rule: str
) -> None:
    path = served.cards / "bad.json"
    make(path)
    verdict = served.verdict_of(path)
    assert (verdict.standing, verdict.serves) == ("invalid", "nothing")
    (reason,) = verdict.reasons
    assert reason.rule == rule
    assert str(path) in reason.message


def test_an_unreadable_file_is_invalid_until_it_can_be_read(root: Path, start: Start) -> None:
    # Root may read everything, unless it is made to ask for permission.
    powers = "-dac_override,-dac_read_search"
    prefix = without("setpriv", "--bounding-set", powers, "--inh-caps", "-all")
    daemon = start(prefix=prefix).wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        host.put("good", GOOD)
        path = root / "cards" / "bad.json"
        path.touch(0)
        verdict = host.verdict_of(path)
        (reason,) = verdict.reasons
        assert (verdict.standing, reason.rule) == ("invalid", "unreadable")
        assert str(path) in reason.message
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        path.write_bytes(flat())
        assert host.verdict_of(path).standing == "serving"
        assert host.workers("good")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a%2Fb", b"{}"), ("%ff%2Fb%2Fc%2F1", b"{}"), ("a%2F%2Fc%2F1", b"{}"), ("notes.txt", b"hi")],
)
def test_a_file_of_a_store_whose_name_is_no_key_is_invalid(
    served: Host, name: str, content: bytes
) -> None:
    path = served.mdc / name
    write(path, content)
    verdict = served.verdict_of(path)
    assert (verdict.standing, verdict.reasons[0].rule) == ("invalid", "file_name")
    assert name in verdict.reasons[0].message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"type": "Endpoint"}', b"\xff" * 9])
def test_a_broken_instance_record_is_as_none(served: Host, content: bytes) -> None:
    # An instance of its own each: a record that was good has effect for a while after it.
    at = f"demo/backend/generate/{len(content)}"
    write(served.instances / store_name(at), content)
    verdict = served.put_in_store(at, envelope(at, {"display_name": "worker"}), record=False)
    assert (verdict.standing, verdict.reasons[0].rule) == ("orphan", "no_instance")
    write(served.instances / store_name(at), instance_record(at))
    assert served.client.sync().standings == {"serving": 2}
    served.remove(served.mdc / store_name(at))


def test_a_name_that_is_not_utf8_is_served_and_can_be_asked_for(served: Host) -> None:
    os.link(served.cards / "good.json", os.fsencode(served.cards) + b"/b\xffd.json")
    verdict = served.client.sync("b\\xffd.json").verdicts[0]
    assert verdict.file == f"{served.cards}/b\\xffd.json"
    assert verdict.standing == "duplicate"


@pytest.mark.parametrize("torn", [c for _, c in NOT_JSON[:4]], ids=[n for n, _ in NOT_JSON[:4]])
def test_bad_content_does_not_take_a_served_card_down(served: Host, torn: bytes) -> None:
    before = served.client.resolve("good").workers
    verdict = served.put("good", torn)
    assert (verdict.standing, verdict.serves) == ("invalid", "previous")
    assert verdict.model == "good"
    assert served.client.resolve("good").workers == before


ODDITIES = [
    ("$.source_path", flat(source_path=7)),
    ("$.aliases", flat(aliases="chat")),
    ("$.aliases[0]", flat(aliases=[7, "chat"])),
    ("$.alias", flat(alias=["chat"])),
    ("$.served_name", flat(served_name="chat")),
    ("$.worker_type", flat(worker_type="router")),
    ("$.display_name", b'{"display_name": "good", "display_name": "bad"}'),
]


@pytest.mark.parametrize(("path", "content"), ODDITIES)
def test_what_dynamo_reads_past_is_a_warning(host: Host, path: str, content: bytes) -> None:
    """B05, B06, B08."""
    verdict = host.put("odd", content)
    assert (verdict.standing, verdict.model) == ("serving", "bad")
    assert any(warning.startswith(f"{path}:") for warning in verdict.warnings), verdict.warnings
