"""What `discoveryctl run` refuses before it starts anything, and what it tells people then."""

from pathlib import Path

import pytest

from discoveryd.client.ctl.cli import run
from discoveryd.client.running.telling import Voice
from discoveryd.client.running.verdicts import card_state, is_refused, refusal
from discoveryd.core.verdict import Standing
from discoveryd.interface import Reason, Verdict

FAILED = 125
URL = "http://127.0.0.1:8001"
COMMAND = ("--", "touch", "started")


@pytest.fixture(autouse=True)
def _there(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be where nothing must be left."""
    monkeypatch.chdir(directory)


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what is said when the arguments are refused; they start nothing."""
    assert run(["run", *arguments]) == FAILED
    assert not Path("started").exists()
    out, err = capfd.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--name", "m", "--url", URL), "Missing argument"),
        (("--name", "m", "--url", URL, "--"), "Missing argument"),
        (("--nme", "m", *COMMAND), "No such option"),
        (("--url", URL, *COMMAND), "with --name or --card"),
        (("--name", "m", *COMMAND), "with --url or --ready"),
        (("--name", "m", "--url", "grpc://h:1", *COMMAND), "cannot be asked over HTTP: say"),
        (("--name", "m", "--url", "http://a]b", *COMMAND), "cannot be asked over HTTP: say"),
        (("--name", "m", "--url", URL, "--ready", "http://a]b", *COMMAND), "cannot be asked"),
        (("--name", "m", "--url", URL, "--ready", "h", *COMMAND), "must begin with"),
        (("--name", "m", "--url", URL, "--ready", "grpc://h:1", *COMMAND), "cannot be asked"),
        (("--name", "m", "--url", URL, "--ready", "http://h:x/?a", *COMMAND), "must have a port"),
        (("--name", "m", "--url", URL, "--endpoint", "a/b", *COMMAND), "NAMESPACE/COMPONENT"),
        (("--name", "m", "--url", URL, "--endpoint", "a//c", *COMMAND), "NAMESPACE/COMPONENT"),
        (("--name", "m", "--url", URL, "--drain", "-1", *COMMAND), "--drain"),
        (("--name", "m\udcff", "--url", URL, *COMMAND), "is not UTF-8"),
        (("--name", "m", "--alias", "\udcff", "--url", URL, *COMMAND), "is not UTF-8"),
        (("--card", "nowhere.json", *COMMAND), "does not exist"),
        (("--card", ".", *COMMAND), "is a directory"),
    ],
    ids=str,
)
def test_wrong_usage_is_a_failure_of_its_own(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in refused(capfd, *arguments)


@pytest.mark.parametrize(
    "option", [("--name", "m"), ("--alias", "m"), ("--source", "s"), ("--url", URL)]
)
def test_a_card_says_everything(
    capfd: pytest.CaptureFixture[str], directory: Path, option: tuple[str, str]
) -> None:
    (directory / "card.json").write_text('{"display_name": "m", "url": "http://h"}')
    assert "--card says all of" in refused(capfd, "--card", "card.json", *option, *COMMAND)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--name", "a\nb", "--url", URL), "the options make no card: $.display_name"),
        (("--name", "m", "--url", "http://me:secret@h"), "has a user or password"),
        (("--name", "m", "--url", "h"), "must begin with"),
        (("--name", "m", "--alias", "n" * 600, "--url", URL), "$.aliases[0]"),
        (("--name", "m", "--url", URL, "--endpoint", "a/b/c\n"), "$.endpoint"),
    ],
    ids=str,
)
def test_options_that_make_no_card_are_told(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    error = refused(capfd, *arguments, *COMMAND)
    assert error.startswith("discoveryctl run: the options make no card: ")
    assert problem in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "card.json is no card: "),
        (b"[]", "card.json is no card: "),
        (b"\xff", "card.json is no card: "),
        (b'{"url": "http://h"}', "card.json is no card: $.display_name is missing"),
        (b'{"display_name": "m", "url": "http://h", "x": "%s"}' % (b"x" * 1_048_500), "bytes"),
        (b'{"display_name": "m", "x": "%s"}' % (b"x" * 1_100_000), "is no card: "),
        (b'{"display_name": "m"}', "with --url or --ready"),
        (b'{"display_name": "m", "url": "unix:///s", "x": "\\ud800"}', "card.json"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_holds_no_card_is_told(
    capfd: pytest.CaptureFixture[str], directory: Path, content: bytes, problem: str
) -> None:
    (directory / "card.json").write_bytes(content)
    assert problem in refused(capfd, "--card", "card.json", *COMMAND)


def test_oddities_of_a_card_are_told(capfd: pytest.CaptureFixture[str], directory: Path) -> None:
    (directory / "card.json").write_text('{"display_name": "m", "url": "http://h", "alias": []}')
    assert run(["run", "--card", "card.json", "--ready", "http://127.0.0.1:1", "--", "true"]) == 0
    assert "discoveryctl run: warning: $.alias: not a known member" in capfd.readouterr().err


def verdict(standing: str, *reasons: Reason) -> Verdict:
    return Verdict(
        file="/cards/m.json",
        names=("m\x1b", "alias"),
        standing=standing,
        serves="current" if standing == "serving" else "nothing",
        reasons=reasons,
        warnings=(),
        since="2026-12-01T09:30:00.000+00:00",
    )


@pytest.mark.parametrize("standing", [str(each.value) for each in Standing])
def test_every_standing_but_an_adapters_wait_for_its_base_is_a_no_at_once(standing: str) -> None:
    found = verdict(standing)
    assert is_refused(found, standby=False) == (standing not in ("serving", "orphan"))
    assert is_refused(found, standby=True) == (standing in ("invalid", "forbidden"))
    assert ("--standby" in refusal(found)) == (standing not in ("invalid", "forbidden"))


def test_what_sets_configurations_apart_is_told_as_field_and_values() -> None:
    reason = Reason(
        rule="other_fingerprint",
        message="a long one",
        field="context_length",
        found="8192",
        expected="32768",
        against=(),
    )
    more = Reason(rule="other", message="Another.", against=())
    assert card_state(verdict("standby", reason, more)) == (
        "m\x1b, alias: standby: context_length is 8192, the workers that serve have 32768; Another."
    )
    assert card_state(verdict("serving")) == "serving m\x1b, alias"
    assert card_state(verdict("expired")) == "m\x1b, alias: expired"


def test_it_speaks_in_printable_lines_of_its_own_and_does_not_repeat_itself(
    capfd: pytest.CaptureFixture[str],
) -> None:
    voice = Voice()
    assert voice.every == 30
    voice.wait("waiting for a: 30 s, \x1b[2J")
    voice.say("one\x1b\ntwo")
    voice.say("one\x1b\ntwo")
    assert capfd.readouterr().err.splitlines() == [
        "discoveryctl run: waiting for a: 30 s, \\u001b[2J",
        "discoveryctl run: one\\u001b",
        "discoveryctl run: two",
    ]
