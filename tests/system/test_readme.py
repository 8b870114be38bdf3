"""The README's tour, run word for word, and its clients."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.running import Daemon, environment

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
HOME = "/home/you/discoveryd"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Give a directory that looks like a clone to someone on the tour."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for number, card in enumerate(sorted(tmp_path.glob("examples/cards/*.json"))):
        os.utime(card, (1_700_000_000 + number,) * 2)  # as git checks them out: one after another
    return tmp_path


@pytest.fixture
def daemon(clone: Path, start: Callable[..., Daemon], root: Path) -> Daemon:
    """Give a daemon that serves the example cards."""
    places = ["--cards", str(clone / "examples/cards"), "--socket", str(root / "s")]
    return start(places).wait_ready()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(command: str, directory: Path, daemon: Daemon) -> str:
    """Run a line of the tour as a shell would, and return what a person sees."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment(PATH=path, DISCOVERYD_SOCKET=str(daemon.socket)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=30,
    )
    return TIME.sub("TIME", done.stdout.replace(str(directory), HOME))


def test_the_tour_is_word_for_word_what_happens(clone: Path, daemon: Daemon) -> None:
    steps = [
        step
        for block in blocks("console")
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(steps) > 6
    for step in steps:
        command, _, promised = step.partition("\n")
        assert run(command, clone, daemon) == TIME.sub("TIME", promised), command


def test_the_client_in_plain_python_gets_a_url(clone: Path, daemon: Daemon) -> None:
    (code,) = (block for block in blocks("python") if "AF_UNIX" in block)
    named = code.replace("/run/discoveryd/io.discoveryd.Models", str(daemon.socket))
    assert run(f"{sys.executable} -c '{named}'", clone, daemon) == "http://127.0.0.1:8001\n"


def test_the_client_of_the_package_gets_the_urls(clone: Path, daemon: Daemon) -> None:
    (code,) = (block for block in blocks("python") if "import Client" in block)
    urls = "http://127.0.0.1:8001\nhttp://127.0.0.1:8002\n"
    assert run(f"{sys.executable} -c '{code}'", clone, daemon) == urls
