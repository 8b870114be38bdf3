"""What discoveryctl export writes: who is in it, who is not, and that no card breaks out of it.

That the real programs take it is test_export.py's, among the tests of the whole.
"""

import json
import re
from typing import Any

import msgspec
import pytest

from discoveryd.client.exporting import litellm, nginx, prometheus
from discoveryd.client.exporting.served import Served, address, comment, weight
from discoveryd.interface import Name, Worker
from tests.client import fakes

EVIL = '"; } server { listen 80; } #\\\n{{x}} $host ~ é\u2028\u202e\U000e0001\ufffe'


def name(text: str = "llama", **members: Any) -> Name:
    return msgspec.convert(fakes.name(text, **members), Name)


def worker(instance: str = "1", **members: Any) -> Worker:
    return msgspec.convert(fakes.worker(instance, **members), Worker)


def served(names: list[Name], *workers: Worker) -> Served:
    return Served.of(names, workers)


LLAMA = [name(), name("chat", kind="alias")]


def entries(text: str) -> list[tuple[str, str, str]]:
    """Return model_name, model and api_base of each entry, as written."""
    return re.findall(
        r'- model_name: "(.*)"\n    litellm_params:\n      model: "(.*)"\n      api_base: "(.*)"\n',
        text,
    )


def upstreams(text: str) -> dict[str, list[str]]:
    found = re.findall(r"^upstream (\w+) \{\n((?:    server .*;\n)+)\}$", text, re.MULTILINE)
    return {upstream: re.findall(r"server (.*);", servers) for upstream, servers in found}


def mapped(text: str) -> dict[str, str]:
    """Return the map, by the expressions of names."""
    return dict(re.findall(r'^    "~\\A(.*)\\z" (\w+);$', text, re.MULTILINE))


class TestServed:
    def test_names_and_workers_are_always_in_one_order(self) -> None:
        workers = [worker("2"), worker("1")]
        seen = Served.of([name("z"), name("a")], workers)
        assert [line.name for line in seen.names] == ["a", "z"]
        assert [each.instance for each in seen.workers] == ["1", "2"]

    def test_a_name_that_is_not_ready_is_no_route(self) -> None:
        seen = served([name(), name("chat", kind="alias", ready=False)], worker())
        assert [route.name for route in seen.routes()] == ["llama"]

    def test_only_workers_that_have_an_alias_answer_it(self) -> None:
        routes = list(served(LLAMA, worker("1"), worker("2", aliases=[])).routes())
        assert {route.name: [each.instance for each in route.workers] for route in routes} == {
            "chat": ["1"],
            "llama": ["1", "2"],
        }

    def test_workers_that_do_a_part_are_not_asked_first(self) -> None:
        workers = (
            worker("1", worker_type="prefill"),
            worker("2", worker_type="decode"),
            worker("3", worker_type="encode"),
        )
        (route,) = served([name()], *workers).routes()
        assert [each.instance for each in route.workers] == ["2"]

    def test_an_operators_name_is_asked_for_as_its_model(self) -> None:
        (route,) = served([name("gpt", kind="operator")], worker()).routes()
        assert (route.asked_as, len(route.workers)) == ("llama", 1)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://127.0.0.1:8001", "127.0.0.1:8001", ""),
        ("http://127.0.0.1/", "127.0.0.1:80", ""),
        ("https://gpu-7.example:8443/llm/", "gpu-7.example:8443", "/llm"),
        ("https://h", "h:443", ""),
        ("http://[::1]:8001", "[::1]:8001", ""),
        ("http://[fe80::1]", "[fe80::1]:80", ""),
    ],
)
def test_an_address_is_told_from_a_url(url: str, authority: str, path: str) -> None:
    found = address(url)
    assert found is not None
    assert (found.authority, found.path) == (authority, path)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "unix:///run/w.sock",
        "grpc://h:1",
        "dynamo+tcp://127.0.0.1:9000/2a/generate",
        "http://a;b:1",
        'http://a"b:1',
        "http://{x}:1",
        "http://$host:1",
        "http://[::::]:1",
        "http://[fe80::1%eth0]:1",
        "http://h:port",
        "http://h:123456",
        "http://",
    ],
)
def test_what_has_no_address_has_none(url: str | None) -> None:
    assert address(url) is None


@pytest.mark.parametrize(
    ("label", "expected"),
    [("3", 3), ("65535", 65535), ("65536", None), ("0", None), ("-1", None), ("0.5", None)],
)
def test_a_weight_is_a_number_from_1_to_65535(label: str, expected: int | None) -> None:
    assert weight(worker(labels={"weight": label})) == expected


def test_a_comment_is_one_line_of_ascii_that_nginx_can_read() -> None:
    line = comment(EVIL * 1000)
    assert line.startswith("# ")
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 4096


class TestLiteLLM:
    def test_each_name_and_worker_is_an_entry(self) -> None:
        text = litellm.text(served(LLAMA, worker("1"), worker("2", aliases=[])))
        assert entries(text) == [
            ("chat", "openai/chat", "http://127.0.0.1:8001/v1"),
            ("llama", "openai/llama", "http://127.0.0.1:8001/v1"),
            ("llama", "openai/llama", "http://127.0.0.1:8002/v1"),
        ]
        assert text.count('api_key: "none"') == 3

    def test_an_operators_name_asks_for_what_the_workers_answer(self) -> None:
        text = litellm.text(served([name("gpt", kind="operator")], worker()))
        assert entries(text) == [("gpt", "openai/llama", "http://127.0.0.1:8001/v1")]

    def test_an_adapter_is_an_entry_of_its_own(self) -> None:
        adapter = worker("2", model="llama-legal", adapter=True, aliases=[], url="http://h:8001/")
        text = litellm.text(served([name("llama-legal", kind="adapter")], adapter))
        assert entries(text) == [("llama-legal", "openai/llama-legal", "http://h:8001/v1")]

    def test_draining_workers_are_not_in_it(self) -> None:
        text = litellm.text(served([name()], worker("1", accepting=False), worker("2")))
        assert [base for _, _, base in entries(text)] == ["http://127.0.0.1:8002/v1"]

    def test_all_of_a_name_have_a_weight_or_none(self) -> None:
        weighted = [worker("1", labels={"weight": "3"}), worker("2"), worker("3")]
        text = litellm.text(served([name()], *weighted))
        assert re.findall("weight: (.*)", text) == ["3", "1", "1"]
        assert "weight" not in litellm.text(served([name()], worker("1"), worker("2")))

    def test_nothing_is_an_empty_list(self) -> None:
        assert litellm.text(served([])).endswith("\nmodel_list: []\n")

    def test_workers_that_it_cannot_ask_are_left_out_aloud(self) -> None:
        text = litellm.text(served([name()], worker("1", url="unix:///w"), worker("2", url=None)))
        assert "model_list: []" in text
        assert "# left out: default/llama/generate/1: LiteLLM cannot ask it: unix:///w\n" in text
        assert "# left out: default/llama/generate/2: LiteLLM cannot ask it: it has no url" in text

    @pytest.mark.parametrize("text", ["*", "gpt-*", "os.environ/HOME"])
    def test_names_that_mean_something_to_it_are_left_out_aloud(self, text: str) -> None:
        one = worker(model=text, aliases=[])
        written = litellm.text(served([name(text, model=text)], one))
        assert entries(written) == []
        assert f"# left out: {text}: to LiteLLM" in written

    def test_a_string_stays_one_whatever_is_in_it(self) -> None:
        written = litellm.text(served([name(EVIL, model=EVIL)], worker(model=EVIL, aliases=[])))
        ((model_name, _, _),) = entries(written)
        assert all(char.isprintable() for char in model_name)
        plain = re.sub(r"\\U([0-9a-f]{8})", lambda m: chr(int(m[1], 16)), model_name)
        assert json.loads(f'"{plain}"') == EVIL


class TestNginx:
    def test_names_of_the_same_workers_share_an_upstream(self) -> None:
        text = nginx.text(served(LLAMA, worker("1"), worker("2")))
        assert upstreams(text) == {"discoveryd_0": ["127.0.0.1:8001", "127.0.0.1:8002"]}
        assert mapped(text) == {"chat": "discoveryd_0", "llama": "discoveryd_0"}

    def test_names_of_other_workers_have_another(self) -> None:
        text = nginx.text(served(LLAMA, worker("1"), worker("2", aliases=[])))
        assert upstreams(text) == {
            "discoveryd_0": ["127.0.0.1:8001"],
            "discoveryd_1": ["127.0.0.1:8001", "127.0.0.1:8002"],
        }
        assert mapped(text) == {"chat": "discoveryd_0", "llama": "discoveryd_1"}

    def test_weights_draining_workers_and_sockets_are_said(self) -> None:
        workers = (
            worker("1", labels={"weight": "3"}),
            worker("2", accepting=False),
            worker("3", url="unix:///run/w@1.sock"),
            worker("4", url="http://[::1]:8004"),
            worker("5", url="http://localhost:8005"),
        )
        assert upstreams(nginx.text(served([name()], *workers))) == {
            "discoveryd_0": [
                "127.0.0.1:8001 weight=3",
                "127.0.0.1:8002 down",
                "unix:/run/w@1.sock",
                "[::1]:8004",
                "localhost:8005",
            ]
        }

    def test_a_name_of_which_all_workers_drain_is_not_mapped(self) -> None:
        text = nginx.text(served([name()], worker(accepting=False)))
        assert (upstreams(text), mapped(text)) == ({}, {})

    def test_a_place_is_there_once(self) -> None:
        twice = worker("2", url="http://127.0.0.1:8001")
        text = nginx.text(served([name()], worker("1"), twice))
        assert upstreams(text) == {"discoveryd_0": ["127.0.0.1:8001"]}

    def test_an_operators_name_is_left_out_aloud(self) -> None:
        text = nginx.text(served([name("gpt", kind="operator")], worker()))
        assert mapped(text) == {}
        assert "# left out: gpt: workers answer it as llama only\n" in text

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("https://127.0.0.1:8001", "http:// and unix:// only"),
            ("grpc://127.0.0.1:8001", "http:// and unix:// only"),
            (None, "it has no url"),
            ("http://127.0.0.1:8001/llm", "no place for a path"),
            ("http://gpu-7:8001", "so give its address"),
            ("unix:///run/" + "x" * 103, "longer than 107 bytes"),
            ("unix:///run/a;b", "more than letters"),
            ("unix:///run/$host", "more than letters"),
            ("unix:///run/{", "more than letters"),
        ],
    )
    def test_workers_that_it_cannot_ask_are_left_out_aloud(self, url: str | None, why: str) -> None:
        text = nginx.text(served(LLAMA, worker("1", url=url), worker("2")))
        assert upstreams(text) == {"discoveryd_0": ["127.0.0.1:8002"]}
        (note,) = re.findall("^# left out: default/llama/generate/1: (.*)$", text, re.MULTILINE)
        assert why in note

    def test_a_name_stays_one_word_whatever_is_in_it(self) -> None:
        evil = served([name(EVIL, model=EVIL)], worker(model=EVIL, aliases=[]))
        ((expression, upstream),) = mapped(nginx.text(evil)).items()
        assert upstream == "discoveryd_0"
        assert re.fullmatch(r"(?:[\w:/@-]|\\x[0-9a-f]{2})+", expression, re.ASCII)
        assert re.fullmatch(expression.encode(), EVIL.encode())
        assert not re.fullmatch(expression.encode(), EVIL.upper().encode())

    def test_nothing_is_a_map_to_nothing(self) -> None:
        text = nginx.text(served([]))
        assert text.endswith('\nmap $discoveryd_model $discoveryd_upstream {\n    default "";\n}\n')


class TestPrometheus:
    @staticmethod
    def groups(*workers: Worker) -> Any:
        return json.loads(prometheus.text(served([], *workers)))

    def test_a_server_is_a_target_with_what_its_card_says(self) -> None:
        (group,) = self.groups(worker(labels={"zone": "a", "rack-nr.": "7", "job": "x"}))
        assert group == {
            "targets": ["127.0.0.1:8001"],
            "labels": {
                "model": "llama",
                "__scheme__": "http",
                "__meta_discoveryd_key": "default/llama/generate/1",
                "__meta_discoveryd_model": "llama",
                "__meta_discoveryd_namespace": "default",
                "__meta_discoveryd_component": "llama",
                "__meta_discoveryd_endpoint": "generate",
                "__meta_discoveryd_instance": "1",
                "__meta_discoveryd_worker_type": "aggregated",
                "__meta_discoveryd_accepting": "true",
                "__meta_discoveryd_label_zone": "a",
                "__meta_discoveryd_label_rack_nr_": "7",
                "__meta_discoveryd_label_job": "x",
            },
        }

    def test_scheme_and_path_are_the_urls(self) -> None:
        (group,) = self.groups(worker(url="https://h:8443/llm"))
        assert group["targets"] == ["h:8443"]
        assert group["labels"]["__scheme__"] == "https"
        assert group["labels"]["__metrics_path__"] == "/llm/metrics"

    def test_a_server_of_several_cards_is_scraped_once(self) -> None:
        adapter = worker("2", model="legal", adapter=True, url="http://127.0.0.1:8001/")
        (group,) = self.groups(adapter, worker("1"))
        assert group["labels"]["model"] == "llama"

    def test_draining_and_prefill_workers_are_scraped(self) -> None:
        groups = self.groups(worker("1", accepting=False), worker("2", worker_type="prefill"))
        assert [group["labels"]["__meta_discoveryd_accepting"] for group in groups] == [
            "false",
            "true",
        ]

    @pytest.mark.parametrize("url", [None, "unix:///run/w.sock", "grpc://h:1", "http://a b:1"])
    def test_servers_without_http_are_left_out(self, url: str | None) -> None:
        assert self.groups(worker(url=url)) == []

    def test_labels_that_become_one_name_do_not_replace_each_other(self) -> None:
        (group,) = self.groups(worker(labels={"a.b": "first", "a-b": "second"}))
        assert group["labels"]["__meta_discoveryd_label_a_b"] == "first"

    def test_the_text_is_ascii_whatever_is_in_it(self) -> None:
        text = prometheus.text(served([], worker(model=EVIL)))
        assert text.isascii()
        assert json.loads(text)[0]["labels"]["model"] == EVIL
