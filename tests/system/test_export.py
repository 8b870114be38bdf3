"""discoveryctl export with a real daemon, and with the real programs that read what it writes."""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import APIError, OpenAI

from tests.system.adopting import free_port
from tests.system.conftest import Start
from tests.system.dropping import GOOD, Host, write
from tests.system.exporting import Exporting, Nginx, export, looping, named_servers
from tests.system.reference import PACKAGE, blocks
from tests.system.routing import StandIn
from tests.system.running import PROMPT_SECONDS, Daemon, environment, until

Keep = Callable[..., Exporting]

NASTY = [
    'x"; } server { listen 1; } upstream y { #',
    "x'; include /etc/passwd;",
    "$host${host}",
    "a\\b\\",
    "~^.*$",
    "~",
    "default",
    "volatile",
    "include",
    "# no comment",
    "{{ x }}",
    "- x: &y [*y, !!python/object/apply:os.system]",
    "zwei\u2028zeilen \u202e \ufffe \U000e0001",
    "日本語 🦙",
    "Good",
    "g.od",
    "x" * 512,
    "🦙" * 128,
    "os.environ/HOME",
    "gpt-*",
]
"""Names that a card may have, and that mean something elsewhere."""

URLS = [
    "http://no-such-host.invalid:8001",
    "http://127.0.0.1:8001/path;x",
    "http://a;b",
    "http://[::::]:1",
    "http://[::1]:8001",
    "https://127.0.0.1:8443",
    "unix:///run/" + "x" * 200,
    "unix:///run/w{};.sock",
    "unix:///run/w.sock",
]
"""URLs that a card may have, some of which no router can take."""


def program(name: str) -> str:
    """Return where a program is, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NOT TESTED: there is no {name} here")
    return found


@pytest.fixture
def nginx(root: Path) -> Iterator[Nginx]:
    """Give an nginx that is configured and not started."""
    program("nginx")
    nginx = Nginx(root)
    try:
        yield nginx
    finally:
        nginx.stop()


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """Give a function that starts `discoveryctl export --watch`."""
    with contextlib.ExitStack() as ends:

        def begin(daemon: Daemon, *arguments: str) -> Exporting:
            exporting = Exporting(daemon, tmp_path / "said", *arguments)
            ends.callback(exporting.kill)
            return exporting

        yield begin


def drop_nasty(host: Host) -> None:
    for number, name in enumerate(NASTY):
        labels = {"weight": name, name: name}
        url = f"http://127.0.0.1:{9000 + number}"
        card = {"display_name": name, "url": url, "labels": labels}
        assert host.put(f"n{number}", card).standing == "serving"
    for number, url in enumerate(URLS):
        host.put(f"u{number}", {"display_name": f"u{number}", "url": url})


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


class TestNginx:
    def test_it_takes_every_card(self, host: Host, nginx: Nginx) -> None:
        drop_nasty(host)
        nginx.export.write_text(export(host.daemon, "nginx"))
        done = nginx.test()
        assert done.returncode == 0, done.stderr
        assert "[warn]" not in done.stderr

    def test_it_sends_a_name_to_its_own_workers(self, host: Host, nginx: Nginx) -> None:
        sent = [name for name in NASTY if "\u2028" not in name]
        with named_servers(["one", "two"]) as urls:
            two = {"display_name": "good", "url": urls["two"], "aliases": ["chat"]}
            host.put("two", two)
            host.put("one", {"display_name": "nasty", "url": urls["one"], "aliases": sent})
            nginx.export.write_text(export(host.daemon, "nginx"))
            nginx.start()
            assert [nginx.who(name) for name in sent] == ["one"] * len(sent)
            assert (nginx.who("good"), nginx.who("chat")) == ("two", "two")
            others = ["CHAT", "GOOD", "xgood", "goodx", "g_od", "good/", ""]
            assert [nginx.status(name) for name in others] == [404] * len(others)

    def test_it_follows_by_reloads(self, host: Host, nginx: Nginx, keep: Keep) -> None:
        with named_servers(["one"]) as urls:
            host.put("one", GOOD | {"url": urls["one"]})
            nginx.export.write_text(export(host.daemon, "nginx"))
            nginx.start()
            reload = " ".join([*nginx.command, "-s", "reload"])
            keep(host.daemon, "nginx", "--output", str(nginx.export), "--exec", reload)
            assert nginx.who("good") == "one"
            host.put("one", GOOD | {"url": urls["one"], "aliases": ["new"]})
            until(lambda: nginx.status("new") == 200, "the new name is routed")
            host.remove(host.cards / "one.json")
            until(lambda: nginx.status("good") == 404, "a name that is gone is not")


def test_promtool_takes_every_card(host: Host, tmp_path: Path) -> None:
    promtool = program("promtool")
    drop_nasty(host)
    targets = tmp_path / "targets.json"
    targets.write_text(export(host.daemon, "prometheus"))
    config = tmp_path / "prometheus.yml"
    jobs = [{"job_name": "workers", "file_sd_configs": [{"files": [str(targets)]}]}]
    config.write_text(json.dumps({"scrape_configs": jobs}))
    command = [promtool, "check", "config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(targets.read_text())) == len(NASTY) + 4


_LOAD = """
import asyncio, json, sys
from litellm import Router
from litellm.proxy.proxy_server import ProxyConfig

config = asyncio.run(ProxyConfig().get_config(config_file_path=sys.argv[1]))
router = Router(model_list=config["model_list"])
names = router.get_model_names()
json.dump(
    {n: [each["litellm_params"] for each in router.get_model_list(model_name=n)] for n in names},
    sys.stdout,
)
"""


@pytest.fixture
def litellm() -> Path:
    """Give a Python that has LiteLLM and its proxy."""
    python = os.environ.get("DISCOVERYD_TEST_LITELLM")
    if python is None and importlib.util.find_spec("litellm") is None:
        pytest.skip(
            "NOT TESTED: there is no LiteLLM here; name in DISCOVERYD_TEST_LITELLM a Python that "
            "has litellm[proxy]"
        )
    return Path(python or sys.executable)


def test_litellms_own_loader_takes_every_card(host: Host, litellm: Path, tmp_path: Path) -> None:
    drop_nasty(host)
    good = GOOD | {"aliases": ["chat"], "source_path": "/m"}
    host.put("a1", good | {"labels": {"weight": "3"}})
    host.put("a2", good | {"url": "http://127.0.0.1:8002"})
    config = tmp_path / "config.yaml"
    config.write_text(export(host.daemon, "litellm"))
    done = subprocess.run(
        [litellm, "-c", _LOAD, str(config)],
        env=environment(LITELLM_LOCAL_MODEL_COST_MAP="True"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = json.loads(done.stdout[done.stdout.index("{") :])
    left_out = {name for name in NASTY if "*" in name or name.startswith("os.environ/")}
    assert {name for name in asked if name[0] != "u"} == {*NASTY, "good", "chat"} - left_out
    for name in set(NASTY) - left_out:
        assert [each["model"] for each in asked[name]] == [f"openai/{name}"]
    assert [(each["api_base"], each["weight"]) for each in asked["good"]] == [
        ("http://127.0.0.1:8001/v1", 3),
        ("http://127.0.0.1:8002/v1", 1),
    ]
    assert [each["model"] for each in asked["chat"]] == ["openai/chat"] * 2


@pytest.mark.timeout(300)
def test_litellm_answers_by_every_name_and_follows_as_its_page_says(
    host: Host, litellm: Path, keep: Keep, tmp_path: Path
) -> None:
    page = text_of(PACKAGE / "client/exporting/export.md")
    exporting, loop = next(b for b in blocks(page, "sh") if "litellm" in b).splitlines()
    _, settings = next(b for b in blocks(page, "yaml") if "master_key" in b).splitlines()
    port = free_port()
    (tmp_path / "litellm.yaml").write_text(f"include: [models.yaml]\n{settings}\n")
    *_, command = shlex.split(exporting)
    models = tmp_path / "models.yaml"
    with contextlib.ExitStack() as ends:
        one = StandIn("llama", "chat")
        ends.callback(one.kill)
        two = StandIn("bot")
        ends.callback(two.kill)
        one.wait_listening()
        two.wait_listening()
        card = {"display_name": "llama", "aliases": ["chat"], "source_path": "/m"}
        host.put("one", card | {"url": one.url})
        keep(host.daemon, "litellm", "--output", str(models), "--exec", f"cd {tmp_path}; {command}")
        until(lambda: "chat" in text_of(models), "it is written")
        ends.enter_context(looping(loop.replace("4000", str(port)), litellm, tmp_path))
        client = ends.enter_context(
            OpenAI(
                base_url=f"http://127.0.0.1:{port}/v1",
                api_key=re.findall(r"sk-[\w-]+", settings)[0],
                max_retries=0,
                timeout=PROMPT_SECONDS,
            )
        )

        def who(name: str) -> str | None:
            try:
                asked = client.chat.completions.create(
                    model=name, messages=[{"role": "user", "content": "Hello"}]
                )
            except APIError:
                return None
            return asked.system_fingerprint

        until(lambda: who("llama") == str(one.port), "it answers", 90)
        assert who("chat") == str(one.port)
        assert who("bot") is None
        host.put("two", {"display_name": "bot", "source_path": "/m", "url": two.url})
        until(lambda: who("bot") == str(two.port), "it follows", 90)
        assert who("chat") == str(one.port)


class TestWatch:
    def test_the_file_follows_what_is_served(self, host: Host, keep: Keep, tmp_path: Path) -> None:
        file = tmp_path / "x.yaml"
        keep(host.daemon, "litellm", "--output", str(file))
        until(lambda: "model_list: []" in text_of(file), "nothing is served")
        host.put("good", GOOD)
        until(lambda: '"good"' in text_of(file), "a card is served")
        host.put("good", GOOD | {"accepting": False})
        until(lambda: "model_list: []" in text_of(file), "it drains")

    def test_what_it_writes_is_what_one_look_prints(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        file = tmp_path / "x.conf"
        keep(host.daemon, "nginx", "--output", str(file))
        until(lambda: "default" in text_of(file), "it has begun")
        for number in (3, 1, 2):
            url = f"http://127.0.0.1:800{number}"
            host.put(f"m{number}", GOOD | {"display_name": f"m{number}", "url": url})
        until(lambda: text_of(file) == export(host.daemon, "nginx"), "both say the same")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it(
        self, host: Host, keep: Keep, tmp_path: Path, number: signal.Signals
    ) -> None:
        file = tmp_path / "x.json"
        exporting = keep(host.daemon, "prometheus", "--output", str(file))
        until(file.exists, "it has begun")
        assert exporting.end(number) == 0
        assert exporting.said == ""

    def test_a_daemon_that_is_away_or_restarts_changes_nothing(
        self, start: Start, keep: Keep, tmp_path: Path
    ) -> None:
        file, runs = tmp_path / "x.conf", tmp_path / "runs"
        first = start().wait_ready()
        write(first.cards / "good.json", GOOD)
        with first.client() as client:
            client.sync()
        count = f"echo run >> {runs}"
        exporting = keep(first, "nginx", "--output", str(file), "--exec", count)
        until(lambda: text_of(runs) == "run\n", "the file is there")
        before = file.stat()
        first.stop()
        second = start().wait_ready()
        write(second.cards / "more.json", GOOD | {"display_name": "m", "url": "http://127.0.0.1:9"})
        until(lambda: "127.0.0.1:9;" in text_of(file), "it follows the new one")
        until(lambda: text_of(runs) == "run\nrun\n", "its command")
        assert file.stat().st_ino != before.st_ino
        assert "127.0.0.1:8001;" in text_of(file)
        assert exporting.end() == 0
        assert text_of(runs) == "run\nrun\n"

    def test_a_file_that_is_right_already_is_left_alone(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        host.put("good", GOOD)
        file, runs = tmp_path / "x.conf", tmp_path / "runs"
        file.write_text(export(host.daemon, "nginx"))
        before = file.stat()
        keep(host.daemon, "nginx", "--output", str(file), "--exec", f"cat {file} >> {runs}")
        host.put("more", GOOD | {"display_name": "more", "url": "http://127.0.0.1:8002"})
        until(lambda: "default" in text_of(runs), "the command ran after a change")
        assert file.stat().st_ino != before.st_ino
        assert text_of(runs) == text_of(file)

    def test_a_command_never_runs_twice_at_once_and_once_more_for_changes_meanwhile(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        file, runs, go = tmp_path / "x.conf", tmp_path / "runs", tmp_path / "go"
        body = f"echo begin >> {runs}; until test -e {go}; do sleep 0.05; done; echo end >> {runs}"
        keep(host.daemon, "nginx", "--output", str(file), "--exec", body)
        until(lambda: text_of(runs) == "begin\n", "the command runs")
        host.put("good", GOOD | {"display_name": "one"})
        until(lambda: '"~\\Aone\\z"' in text_of(file), "a write waits for no command")
        host.put("good", GOOD | {"display_name": "two"})
        until(lambda: '"~\\Atwo\\z"' in text_of(file), "nor does the next")
        assert text_of(runs) == "begin\n"
        go.touch()
        until(lambda: text_of(runs) == "begin\nend\nbegin\nend\n", "one more run for both")

    def test_a_command_that_fails_is_told_and_ends_nothing(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        file = tmp_path / "x.conf"
        exporting = keep(host.daemon, "nginx", "--output", str(file), "--exec", "echo no; exit 3")
        until(lambda: "exit status 3" in exporting.said, "the failure is told")
        assert exporting.said == "no\ndiscoveryctl: 'echo no; exit 3' failed: exit status 3\n"
        host.put("good", GOOD)
        until(lambda: exporting.said.count("exit status 3") == 2, "it goes on")
        assert exporting.end() == 0

    def test_a_command_that_is_killed_is_told(self, host: Host, keep: Keep, tmp_path: Path) -> None:
        file = tmp_path / "x.conf"
        exporting = keep(host.daemon, "nginx", "--output", str(file), "--exec", "kill -9 $$")
        until(lambda: "was ended by SIGKILL" in exporting.said, "how it ended is told")

    def test_a_command_that_runs_at_the_end_may_finish(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        file, runs = tmp_path / "x.conf", tmp_path / "runs"
        body = f"echo begin >> {runs}; sleep 0.5; echo end >> {runs}"
        exporting = keep(host.daemon, "nginx", "--output", str(file), "--exec", body)
        until(lambda: text_of(runs) == "begin\n", "the command runs")
        assert exporting.end() == 0
        assert text_of(runs) == "begin\nend\n"

    def test_a_place_that_goes_away_is_told_and_tried_again(
        self, host: Host, keep: Keep, tmp_path: Path
    ) -> None:
        place, away = tmp_path / "place", tmp_path / "away"
        place.mkdir()
        exporting = keep(host.daemon, "nginx", "--output", str(place / "x.conf"))
        until((place / "x.conf").exists, "it has begun")
        place.rename(away)
        host.put("good", GOOD)
        until(lambda: "cannot write" in exporting.said, "the failure is told")
        away.rename(place)
        host.put("good", GOOD | {"aliases": ["chat"]})
        until(lambda: "chat" in text_of(place / "x.conf"), "it is written again")
        assert exporting.said.count("cannot write") == 1
        assert exporting.end() == 0
