"""Cases from the field about names and entries: who answers, who does not, and who is told why.

A worker is in an answer if and only if a card that lies there now says so, and a card that waits
owns nothing. Everything goes through a daemon process.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.client import Client, NoSuchModel
from discoveryd.interface import Cursor, Verdict
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.running import until

SOURCE = "/m/l"


def card(name: str, instance: int = 1, **members: object) -> Json:
    """Return a card on the endpoint that all of them share, unless it says otherwise."""
    url = f"http://127.0.0.1:{8000 + instance}"
    return {"display_name": name, "component": "shared", "url": url} | members


def answered(client: Client) -> dict[str, list[str]]:
    """Return the files that answer each name, of a host where nobody drains.

    All that lists workers or names must say the same.
    """
    names = {line.name: line.workers for line in client.list().names}
    told = {name: [w.file for w in client.resolve(name).workers] for name in names}
    assert {name: len(files) for name, files in told.items()} == names
    listed = client.workers().workers
    assert len(listed) == len({worker.key for worker in listed})
    assert {w.file for w in listed} == {file for files in told.values() for file in files}
    for name, files in told.items():
        assert sorted(w.file for w in client.workers(name).workers) == sorted(files)
    with contextlib.closing(client.watch()) as replies:
        assert {line.name: line.workers for line in next(replies).names} == names
    return {name: [os.path.basename(f) for f in files] for name, files in told.items()}  # noqa: PTH119 - one line


# Entries that are stale or double


def test_an_emptied_directory_leaves_nothing_in_any_answer(host: Host) -> None:
    """B54: emptied one by one, and at once."""
    for at_once in (False, True):
        for number in range(20):
            write(host.cards / f"{number}.json", card(f"m{number}", number, source_path=SOURCE))
        assert host.client.sync().standings == {"serving": 20}
        for path in sorted(host.cards.iterdir()):
            path.unlink()
            if not at_once:
                host.sync_gone(path)
        if at_once:
            host.client.sync()
        assert answered(host.client) == {}
        assert host.client.explain().verdicts == ()
        assert host.client.status().standings == {}
        assert host.workers("m0") is None


@contextlib.contextmanager
def asked_meanwhile(host: Host, *questions: Callable[[Client], None]) -> Iterator[None]:
    """Ask each question again and again, over a connection of its own, while the body runs."""
    over = threading.Event()
    faults: list[BaseException] = []
    asked = [0] * len(questions)

    def ask(number: int) -> None:
        try:
            with host.daemon.client() as client:
                while not over.is_set():
                    questions[number](client)
                    asked[number] += 1
        except BaseException as fault:  # noqa: BLE001  # it is raised where it can be seen
            faults.append(fault)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(questions))]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(asked) or bool(faults), "all have asked")
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


def test_no_answer_of_a_later_revision_holds_a_worker_that_was_removed(host: Host) -> None:
    """B56: whatever is asked, one revision says one thing."""
    stays, goes = "stays.json", "goes.json"
    host.put("stays", card("m", 1))
    host.put("goes", card("m", 2))
    seen: list[tuple[Cursor, frozenset[str]]] = []

    def resolve(client: Client) -> None:
        reply = client.resolve("m")
        seen.append((reply.cursor, frozenset(Path(w.file).name for w in reply.workers)))

    def workers(client: Client) -> None:
        reply = client.workers("m")
        seen.append((reply.cursor, frozenset(Path(w.file).name for w in reply.workers)))

    expected: dict[Cursor, frozenset[str]] = {
        host.client.list().cursor: frozenset((stays, goes)),
    }
    with asked_meanwhile(host, resolve, resolve, workers):
        for _ in range(30):
            host.remove(host.cards / goes)
            expected[host.client.list().cursor] = frozenset((stays,))
            host.put("goes", card("m", 2))
            expected[host.client.list().cursor] = frozenset((stays, goes))
    assert {cursor for cursor, _ in seen} <= expected.keys()
    assert [told for told in seen if told[1] != expected[told[0]]] == []


def test_a_card_that_is_rewritten_is_one_worker_under_its_present_names_only(host: Host) -> None:
    """B58: also as another role, and as an adapter."""
    for version in range(50):
        host.put("a", card("m", aliases=[f"alias{version}"], labels={"version": str(version)}))
        assert answered(host.client) == {"m": ["a.json"], f"alias{version}": ["a.json"]}
    host.put("a", card("n"))
    assert answered(host.client) == {"n": ["a.json"]}
    for role in ("prefill", "decode", "aggregated"):
        host.put("a", card("n", worker_type=role))
        assert answered(host.client) == {"n": ["a.json"]}
        assert [w.worker_type for w in host.client.workers().workers] == [role]
    host.put("a", card("n", instance=2))
    assert answered(host.client) == {"n": ["a.json"]}
    lora = card("l", instance=2, source_path="s", lora={})
    assert host.put("a", lora).standing == "orphan"
    assert answered(host.client) == {}


def test_a_card_that_left_may_come_again_each_time(host: Host) -> None:
    """B60: also after it was refused."""
    for _ in range(50):
        assert host.put("a", card("m")).standing == "serving"
        assert host.put("b", card("other", 2)).standing == "refused"
        host.remove(host.cards / "a.json")
        assert answered(host.client) == {"other": ["b.json"]}
        assert host.put("a", card("m")).standing == "refused"
        host.remove(host.cards / "b.json")
        assert answered(host.client) == {"m": ["a.json"]}
        host.remove(host.cards / "a.json")
    assert answered(host.client) == {}


# Two models on one endpoint


def test_another_source_is_refused_and_the_reason_names_both_parties(host: Host) -> None:
    """B61."""
    first = host.put("a", card("A", 1, source_path="/m/a"))
    second = host.put("b", card("B", 2, source_path="/m/b"))
    assert (first.standing, second.standing) == ("serving", "refused")
    (reason,) = second.reasons
    assert (reason.rule, reason.field) == ("different_source", "source_path")
    assert second.file.endswith("/b.json")
    assert reason.against == (first.file,)
    for part in ('"A"', '"B"', '"/m/a"', '"/m/b"'):
        assert part in reason.message
    assert answered(host.client) == {"A": ["a.json"]}
    host.remove(host.cards / "a.json")
    assert answered(host.client) == {"B": ["b.json"]}


@pytest.mark.parametrize("other", ["/m/l/", "./m/l", "m/l", "/m//l", "/m/L", "org/l", "a link"])
def test_sources_are_compared_byte_by_byte_and_both_are_told(host: Host, other: str) -> None:
    """B63: no path is normalised, and no link is followed."""
    source = SOURCE
    if other == "a link":
        source = str(host.cards)
        link = host.cards.with_name("link")
        link.symlink_to(source)
        other = str(link)
    assert host.put("a", card("A", 1, source_path=source)).standing == "serving"
    second = host.put("b", card("B", 2, source_path=other))
    assert second.standing == "refused"
    (reason,) = second.reasons
    assert (reason.rule, reason.found, reason.expected) == ("different_source", other, source)
    assert f'"{other}" is not "{source}"' in reason.message


@pytest.mark.parametrize("mine", [{}, {"source_path": ""}, {"source_path": None}])
@pytest.mark.parametrize("theirs", [{}, {"source_path": ""}])
def test_no_source_is_not_the_same_source(host: Host, mine: Json, theirs: Json) -> None:
    """B64."""
    assert host.put("a", card("A", 1, **theirs)).standing == "serving"
    second = host.put("b", card("B", 2, **mine))
    assert second.standing == "refused"
    assert [reason.rule for reason in second.reasons] == ["no_source"]


@pytest.mark.parametrize("first", ["alias", "primary"])
@pytest.mark.parametrize(
    ("component", "standing", "rule"),
    [("shared", "refused", "name_taken"), ("elsewhere", "blocked", "name_claimed")],
)
def test_an_alias_and_a_primary_collide_in_both_orders(
    host: Host, first: str, component: str, standing: str, rule: str
) -> None:
    """B67: by another rule on another endpoint, and it is always the later that waits."""
    cards = {
        "alias": card("m", 1, source_path=SOURCE, aliases=["n"]),
        "primary": card("n", 2, source_path=SOURCE, component=component),
    }
    second = "primary" if first == "alias" else "alias"
    one = host.put(first, cards[first])
    two = host.put(second, cards[second])
    assert (one.standing, two.standing) == ("serving", standing)
    (reason,) = two.reasons
    assert (reason.rule, reason.found, reason.against) == (rule, "n", (one.file,))
    assert {file for files in answered(host.client).values() for file in files} == {f"{first}.json"}
    host.remove(host.cards / f"{first}.json")
    assert {file for files in answered(host.client).values() for file in files} == {
        f"{second}.json"
    }


def test_only_the_worker_that_declares_an_alias_answers_it(host: Host) -> None:
    """B68: workers of one group with unequal aliases are two cohorts, so the second stands by."""
    assert host.put("w1", card("m", 1)).standing == "serving"
    assert host.put("w2", card("m", 2, aliases=["z"])).standing == "standby"
    assert answered(host.client) == {"m": ["w1.json"]}
    host.put("w2", card("m", 2, aliases=["z"], component="elsewhere"))
    assert answered(host.client) == {"m": ["w1.json", "w2.json"], "z": ["w2.json"]}


# Newcomers at one moment


@pytest.mark.parametrize("winner", ["a", "b"])
def test_of_two_that_come_together_the_older_file_wins(host: Host, winner: str) -> None:
    """B69."""
    loser = "b" if winner == "a" else "a"
    prepared = {name: host.cards / f".{name}" for name in "ab"}
    for run in range(50):
        for name, path in prepared.items():
            write(path, card(name, ord(name)))
            mtime = 10**18 + run * 10 + (0 if name == winner else 1)
            os.utime(path, ns=(mtime, mtime))
        for name in (winner, loser):
            prepared[name].rename(host.cards / f"{name}.json")
        host.client.sync()
        assert host.standings() == {f"{winner}.json": "serving", f"{loser}.json": "refused"}
        for name in (loser, winner):
            (host.cards / f"{name}.json").unlink()
        host.client.sync()


def test_a_scan_that_finds_both_lets_the_older_win_whatever_their_names(
    root: Path, start: Start
) -> None:
    """B69: the directory is another one at once, so that they are one batch for certain."""
    daemon = start().wait_ready()
    coming, going = root / "coming", root / "going"
    with daemon.client() as client:
        for run in range(10):
            older = "ab"[run % 2]
            coming.mkdir()
            for name in "ab":
                write(coming / f"{name}.json", card(name, ord(name)))
                mtime = 10**18 + (0 if name == older else 1)
                os.utime(coming / f"{name}.json", ns=(mtime, mtime))
            daemon.cards.rename(going)
            client.sync()
            assert answered(client) == {}
            coming.rename(daemon.cards)
            client.sync()
            assert answered(client) == {older: [f"{older}.json"]}
            shutil.rmtree(going)


# What a loser owns, and who is told


INCUMBENTS: dict[str, Json] = {
    "base": card("base", 1, source_path=SOURCE, aliases=["alias"]),
    "adapter": card("adapter", 1, source_path=SOURCE, lora={}),
}
LOSERS: list[tuple[str, str, Json]] = [
    ("refused", "different_source", card("x", 2, source_path="/other", aliases=["y"])),
    ("refused", "name_taken", card("x", 2, source_path=SOURCE, aliases=["alias", "y"])),
    ("refused", "adapter_name_taken", card("base", 2, source_path=SOURCE, lora={})),
    ("refused", "adapter_name_taken", card("adapter", 2, source_path=SOURCE)),
    ("refused", "different_base", card("x", 1, source_path="/other", lora={})),
    ("blocked", "name_claimed", card("x", 2, component="other", aliases=["y", "alias"])),
    ("blocked", "name_claimed", card("adapter", 2, component="other", aliases=["y"])),
    ("standby", "other_fingerprint", card("base", 2, source_path=SOURCE, aliases=["y"])),
    ("duplicate", "duplicate_key", card("x", 1, source_path=SOURCE, aliases=["y"])),
    ("orphan", "no_base", card("x", 2, source_path=SOURCE, lora={})),
    ("invalid", "bad_name", card("x", 2, aliases=["y", ""])),
]


@pytest.mark.parametrize(("standing", "rule", "loser"), LOSERS)
def test_a_card_that_waits_owns_nothing_and_is_shown_with_its_reason(
    host: Host, standing: str, rule: str, loser: Json
) -> None:
    """B70, B76: whichever gate it waits at; neither its coming nor its going changes an answer."""
    for name, incumbent in INCUMBENTS.items():
        assert host.put(name, incumbent).standing == "serving"
    before = answered(host.client)
    assert before == {"base": ["base.json"], "alias": ["base.json"], "adapter": ["adapter.json"]}
    workers = host.client.workers().workers
    verdict = host.put("loser", loser)
    assert (verdict.standing, verdict.serves) == (standing, "nothing")
    assert verdict.file == str(host.cards / "loser.json")
    assert rule in [reason.rule for reason in verdict.reasons]
    assert answered(host.client) == before
    assert host.client.workers().workers == workers
    assert host.client.explain().verdicts == (verdict,)
    for name in ("x", "y"):
        with pytest.raises(NoSuchModel) as missing:
            host.client.resolve(name)
        assert set(missing.value.waiting) <= {verdict}
        if name in verdict.names:
            assert missing.value.waiting == (verdict,)
    host.remove(host.cards / "loser.json")
    assert answered(host.client) == before
    assert host.client.explain().verdicts == ()


# Aliases


@pytest.mark.parametrize(
    ("component", "standing"), [("shared", "refused"), ("elsewhere", "blocked")]
)
def test_two_models_may_not_share_an_alias(host: Host, component: str, standing: str) -> None:
    """B71."""
    first = host.put("a", card("A", 1, source_path=SOURCE, aliases=["x"]))
    second = host.put("b", card("B", 2, source_path=SOURCE, aliases=["x"], component=component))
    assert second.standing == standing
    (reason,) = second.reasons
    assert (reason.found, reason.against) == ("x", (first.file,))
    assert answered(host.client) == {"A": ["a.json"], "x": ["a.json"]}


@pytest.mark.parametrize("aliases", [["x", "x"], ["A", "x"], ["x", "A", "x", "A"]])
def test_a_card_that_repeats_its_own_names_has_each_once(host: Host, aliases: list[str]) -> None:
    """B71: and an alias that is the own primary is nothing (B72)."""
    assert host.put("a", card("A", aliases=aliases)).standing == "serving"
    assert answered(host.client) == {"A": ["a.json"], "x": ["a.json"]}
    kinds = {line.name: (line.kind, line.model) for line in host.client.list().names}
    assert kinds == {"A": ("primary", "A"), "x": ("alias", "A")}


@pytest.mark.parametrize("component", ["shared", "elsewhere"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_cycle_of_aliases_is_the_first_cards(host: Host, component: str, first: str) -> None:
    """B72."""
    second = "b" if first == "a" else "a"
    host.put(first, card(first, 1, source_path=SOURCE, aliases=[second]))
    later = card(second, 2, source_path=SOURCE, aliases=[first], component=component)
    assert host.put(second, later).standing in ("refused", "blocked")
    assert answered(host.client) == {first: [f"{first}.json"], second: [f"{first}.json"]}
    assert host.client.resolve(second).model == first


def test_variants_that_may_share_an_alias_both_answer_it_in_a_stable_order(host: Host) -> None:
    """B73: one primary, two endpoints, two configurations."""
    variants = {
        "z-first": card("m", 1, aliases=["x"], component="big", context_length=9000),
        "a-second": card("m", 2, aliases=["x"], component="small", context_length=1000),
    }
    for name, variant in variants.items():
        assert host.put(name, variant).standing == "serving"
    for version in range(3):
        order = ["z-first.json", "a-second.json"]
        assert answered(host.client) == {"m": order, "x": order}
        host.put("z-first", variants["z-first"] | {"labels": {"version": str(version)}})


def test_another_checkpoint_under_a_served_name_replaces_nobody(host: Host) -> None:
    """B75: it stands by, is told what differs, and takes over when the first leaves."""
    first = host.put("a", card("m", 1, source_path="/one"))
    second = host.put("b", card("m", 2, source_path="/two"))
    assert (first.standing, second.standing) == ("serving", "standby")
    (reason,) = second.reasons
    assert (reason.rule, reason.field) == ("other_fingerprint", "source_path")
    assert reason.against == (first.file,)
    assert answered(host.client) == {"m": ["a.json"]}
    host.remove(host.cards / "a.json")
    assert answered(host.client) == {"m": ["b.json"]}


def test_all_names_of_a_card_are_served(host: Host) -> None:
    """B77."""
    host.put("a", card("one", aliases=["two", "three"]))
    assert answered(host.client) == {name: ["a.json"] for name in ("one", "two", "three")}
    assert {host.client.resolve(name).model for name in ("one", "two", "three")} == {"one"}


# Adapters


@pytest.mark.parametrize("name", ["base", "alias"])
def test_an_adapter_on_its_bases_own_server_may_not_take_its_name(host: Host, name: str) -> None:
    """B78."""
    base = host.put("base", card("base", source_path=SOURCE, aliases=["alias"]))
    before = host.client.resolve("base"), host.client.resolve("alias")
    adapter = host.put("adapter", card(name, source_path=SOURCE, lora={}))
    assert adapter.standing == "refused"
    (reason,) = adapter.reasons
    assert (reason.rule, reason.found, reason.against) == (
        "adapter_name_taken",
        name,
        (base.file,),
    )
    after = host.client.resolve("base"), host.client.resolve("alias")
    assert [reply.workers for reply in after] == [reply.workers for reply in before]
    assert answered(host.client) == {"base": ["base.json"], "alias": ["base.json"]}


def test_an_adapter_leaves_alone(host: Host) -> None:
    """B80: also where it goes by an edit that makes it another one."""
    host.put("base", card("base", source_path=SOURCE))
    for name in ("l1", "l2", "l3"):
        host.put(name, card(name, source_path=SOURCE, lora={}))
    expected = {name: [f"{name}.json"] for name in ("base", "l1", "l2", "l3")}
    assert answered(host.client) == expected
    host.remove(host.cards / "l2.json")
    del expected["l2"]
    assert answered(host.client) == expected
    host.put("l3", card("l4", source_path=SOURCE, lora={}))
    expected["l4"] = expected.pop("l3")
    assert answered(host.client) == expected


# A rewrite that fails


def test_a_rewrite_that_may_not_serve_is_told_and_the_last_version_answers(host: Host) -> None:
    """B81: until it is right again; every answer is of one version all the while."""

    def version() -> list[str | None]:
        return [(w.labels or {}).get("version") for w in host.client.workers().workers]

    host.put("a", card("m", aliases=["x"], labels={"version": "1"}))
    host.put("other", card("taken", 2, component="elsewhere"))
    old = {"m": ["a.json"], "x": ["a.json"], "taken": ["other.json"]}
    bad: list[tuple[str, bytes | Json]] = [
        ("invalid", b'{"display_name": "n", "ali'),
        ("invalid", card("", labels={"version": "2"})),
        ("blocked", card("n", aliases=["taken"], labels={"version": "2"})),
    ]
    for standing, content in bad:
        verdict: Verdict = host.put("a", content)
        assert (verdict.standing, verdict.serves) == (standing, "previous")
        assert verdict.reasons
        assert answered(host.client) == old
        assert "1" in version()
        assert host.client.explain("a.json").verdicts == (verdict,)
    fixed = host.put("a", card("n", aliases=["y"], labels={"version": "3"}))
    assert (fixed.standing, fixed.serves) == ("serving", "current")
    assert answered(host.client) == {"n": ["a.json"], "y": ["a.json"], "taken": ["other.json"]}
    assert "3" in version()
    assert host.client.explain().verdicts == ()


# Names as they are written


NAMES = (
    "org/m:tag@q4",
    "gpt-4o-2024-08-06",
    "openrouter/x:free",
    "a%2Fb",
    "a/b",
    "a b",
    "a\\b",
    'a"b',
    "../m",
    ".",
    "modèle",
    "模型/一",
    "m\U0001f600",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_back_as_it_was_written(host: Host, name: str) -> None:
    """B83: as a primary, an alias and an adapter."""
    server = {"url": "http://127.0.0.1:8001", "source_path": SOURCE}
    for kind in ("primary", "alias", "adapter"):
        base = {"display_name": name if kind == "primary" else "base"} | server
        host.put("base", base | ({"aliases": [name]} if kind == "alias" else {}))
        if kind == "adapter":
            host.put("adapter", {"display_name": name, "lora": {}} | server)
        reply = host.client.resolve(name)
        assert (reply.name, reply.kind) == (name, kind)
        assert len(reply.workers) == 1
        assert name in (*reply.workers[0].aliases, reply.workers[0].model)
        assert name in answered(host.client)


def test_names_that_escape_alike_are_different_models(host: Host) -> None:
    """B83: all at once, each with its own answer."""
    for number, name in enumerate(NAMES):
        verdict = host.put(f"{number}", {"display_name": name})
        assert verdict.standing == "serving"
    assert answered(host.client) == {name: [f"{n}.json"] for n, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("served", "asked", "hinted"),
    [
        ("llama3.1", "Llama3.1", True),
        ("Llama3.1", "llama3.1", True),
        ("mod\u00e8le", "mode\u0300le", True),
        ("mode\u0300le", "mod\u00e8le", True),
        ("model", "model ", True),
        ("model ", "model", True),
        ("TITAN", "titan", True),
        ("T\u0130TAN", "titan", False),
        ("t\u0131tan", "TITAN", False),
    ],
)
def test_a_near_miss_is_answered_by_a_hint_and_by_no_model(
    host: Host, served: str, asked: str, hinted: bool
) -> None:
    """B74, B84: in whatever locale, and both names may be served."""
    host.put("served", {"display_name": served})
    with pytest.raises(NoSuchModel) as missing:
        host.client.resolve(asked)
    assert missing.value.similar == ((served,) if hinted else ())
    assert host.put("asked", {"display_name": asked}).standing == "serving"
    assert answered(host.client) == {served: ["served.json"], asked: ["asked.json"]}


# All or nothing


def test_the_names_of_a_card_come_and_go_together(host: Host) -> None:
    """B85: a hundred cards with five names each, while four clients list."""
    torn: list[set[str]] = []
    sizes: set[int] = set()

    def watch_names(client: Client) -> None:
        names = [line.name for line in client.list().names]
        sizes.add(len(names))
        per_card: dict[str, set[str]] = {}
        for name in names:
            per_card.setdefault(name.partition("-")[0], set()).add(name)
        torn.extend(found for found in per_card.values() if len(found) != 5)

    with asked_meanwhile(host, *[watch_names] * 4):
        for _ in range(3):
            for number in range(100):
                aliases = [f"{number}-{part}" for part in range(1, 5)]
                write(
                    host.cards / f"{number}.json",
                    {"display_name": f"{number}-0", "aliases": aliases},
                )
            assert host.client.sync().standings == {"serving": 100}
            assert len(host.client.list().names) == 500
            for path in host.cards.iterdir():
                path.unlink()
            host.client.sync()
    assert torn == []
    assert len(sizes) > 1
