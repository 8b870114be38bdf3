"""discoveryctl export: where it writes, what it refuses, what it does to the file that is there."""

import os
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.client import Models
from discoveryd.client.ctl.session import NO, NO_DAEMON
from discoveryd.client.exporting import keeping, nginx
from discoveryd.client.exporting.keeping import Keeping, put
from discoveryd.client.workers.publishing import CannotWrite
from tests.client import fakes
from tests.client.backends import on_both, until
from tests.client.ctl import EVIL, USAGE, Ctl
from tests.client.fakes import FakeDaemon


def serve(daemon: FakeDaemon, *names: str) -> None:
    """Serve these names by one worker, told in two pieces."""
    stream = daemon.stream()
    members: dict[str, Any] = {"model": names[0], "aliases": list(names[1:])}
    first = fakes.watched(reset=True, partial=True, changed=[fakes.worker(**members)])
    stream.put(**first)
    stream.put(**fakes.watched(names=[fakes.name(name, model=names[0]) for name in names]))


def test_it_prints_the_whole_state(daemon: FakeDaemon, ctl: Ctl) -> None:
    serve(daemon, "llama", "chat")
    done = ctl("export", "litellm")
    assert (done.status, done.err) == (0, "")
    assert done.out.count("- model_name:") == 2


@pytest.mark.parametrize("form", ["litellm", "nginx", "prometheus"])
def test_what_it_prints_steers_no_terminal(daemon: FakeDaemon, ctl: Ctl, form: str) -> None:
    serve(daemon, EVIL, f"{EVIL}*")
    done = ctl("export", form)
    assert done.status == 0
    assert done.out.replace("\n", "").isprintable()


def test_it_writes_a_file_for_all_to_read(daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    serve(daemon, "llama")
    file = tmp_path / "x.yaml"
    done = ctl("export", "litellm", "--output", str(file))
    assert (done.status, done.out, done.err) == (0, "", "")
    assert '- model_name: "llama"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["haproxy"], "haproxy"),
        ([], "FORMAT"),
        (["nginx", "--watch"], "say which with --output"),
        (["nginx", "--exec", "true"], "--exec goes with --watch"),
        (["nginx", "--json"], "leave out --json"),
    ],
)
def test_wrong_usage_asks_nobody(
    daemon: FakeDaemon, ctl: Ctl, arguments: list[str], why: str
) -> None:
    done = ctl("export", *arguments)
    assert done.status == USAGE
    assert why in done.err
    assert not daemon.calls


@pytest.mark.parametrize("more", [[], ["--watch"]])
def test_without_a_daemon_the_file_stays(
    directory: Path, ctl: Ctl, tmp_path: Path, more: list[str]
) -> None:
    file = tmp_path / "x.json"
    file.write_text("kept")
    nobody = ["--socket", str(directory / "nobody"), "--timeout", "0.2"]
    done = ctl("export", "prometheus", "--output", str(file), *nobody, *more)
    assert done.status == NO_DAEMON
    assert file.read_text() == "kept"


@pytest.mark.parametrize("more", [[], ["--watch"]])
def test_a_place_that_is_not_there_is_told(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path, more: list[str]
) -> None:
    serve(daemon, "llama")
    done = ctl("export", "nginx", "--output", str(tmp_path / "none/x.conf"), *more)
    assert done.status == NO
    assert "none/x.conf: No such file or directory" in done.err


def test_an_equal_text_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert put(str(file), "one")
    before = file.stat()
    assert not put(str(file), "one")
    assert file.stat() == before
    assert put(str(file), "two")
    assert file.read_text() == "two"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("one")
    file.chmod(0o640)
    assert put(str(file), "two")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("one")
    link.symlink_to(target)
    assert put(str(link), "two")
    assert link.is_symlink()
    assert target.read_text() == "two"


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CannotWrite, match="pipe: it is no regular file"):
        put(str(pipe), "x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@on_both
async def test_a_command_that_does_not_end_is_killed_at_the_end(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "GRACE_SECONDS", 0.05)
    serve(daemon, "llama")
    file, said = tmp_path / "x", tmp_path / "pid"
    kept = Keeping(str(file), nginx.text, f"echo $$ > {said}; exec sleep 1000", pytest.fail)
    async with Models.follow(daemon.path) as models, anyio.create_task_group() as tasks:
        kept.write(models)
        tasks.start_soon(kept.keep, models)
        await until(lambda: said.exists() and said.read_text().endswith("\n"), "the command")
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)


@on_both
async def test_a_command_that_cannot_be_started_is_told(daemon: FakeDaemon, tmp_path: Path) -> None:
    serve(daemon, "llama")
    told: list[str] = []
    kept = Keeping(str(tmp_path / "x"), nginx.text, "#" * 1_000_000, told.append)
    async with Models.follow(daemon.path) as models, anyio.create_task_group() as tasks:
        kept.write(models)
        tasks.start_soon(kept.keep, models)
        await until(lambda: bool(told), "what is told")
        tasks.cancel_scope.cancel()
    assert told[0].endswith(": Argument list too long")
