"""What `discoveryctl adopt` refuses before it asks anybody."""

import pytest

from discoveryd.client.ctl.cli import run

URL = "http://127.0.0.1:8001"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["adopt", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8001", "must begin with"),
        ("ftp://host", "must begin with"),
        ("http://:8001", "names no host"),
        ("http://host:port", "must have a port"),
        ("http://host/?a=b", "has a query"),
        ("grpc://host:1", "cannot be asked over HTTP"),
        ("http://ho\udcffst", "is not UTF-8"),
        ("", "must begin with"),
        ("/v1", "must begin with"),
    ],
)
def test_what_is_no_servers_url_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], url: str, problem: str
) -> None:
    assert problem in refused(capsys, URL, url)


def test_a_password_in_a_url_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "http://me:s3cret@host")
    assert "has a user or password" in error
    assert "s3cret" not in error


@pytest.mark.parametrize("option", ["--name", "--alias"])
@pytest.mark.parametrize("name", ["", "a\nb", "n" * 513, "\udcff"], ids=repr)
def test_a_name_that_no_card_may_have_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    assert option in refused(capsys, URL, option, name)


def test_a_key_that_is_not_there_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", " ")
    for variable in ("NOT_THERE", "EMPTY"):
        error = refused(capsys, URL, "--api-key-env", variable)
        assert f"the variable '{variable}' is not set" in error


@pytest.mark.parametrize("key", ["s3cret\nX-Other: 1", "s3crét", "s3cret two"])
def test_a_key_that_cannot_be_one_is_not_repeated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("KEY", key)
    error = refused(capsys, URL, "--api-key-env", "KEY")
    assert "cannot be a key" in error
    assert "s3cr" not in error


def test_without_a_url_there_is_nothing_to_adopt(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Missing argument" in refused(capsys)
