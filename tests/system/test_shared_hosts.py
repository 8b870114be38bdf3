"""One host, several users: who may claim what, whose a name is, and how many cards each may have.

Files are given to other users, which only root can do.
"""

import json
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.client import NoSuchModel
from discoveryd.interface import Verdict
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.running import until, without

ANN, BEN = 4711, 4712

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT TESTED: only root can give files to other users"
)

Shared = Callable[..., Host]


def flat(name: str, **members: object) -> Json:
    return {"display_name": name, "instance": name, **members}


@pytest.fixture
def shared(root: Path, start: Start) -> Iterator[Shared]:
    """Give a function that starts a daemon with such a configuration, in a directory for all."""
    hosts: list[Host] = []

    def begin(configuration: str, directories: tuple[str, ...] = ("cards",)) -> Host:
        cards = root / "cards"
        cards.mkdir(exist_ok=True)
        cards.chmod(0o1777)
        file = root / "config.toml"
        file.write_text(f'cards = {json.dumps(directories)}\nsocket = "s"\n{configuration}')
        daemon = start(["--config", str(file)]).wait_ready()
        hosts.append(Host(daemon, daemon.client()))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.client.close()


def put(host: Host, uid: int, name: str, card: Json, directory: Path | None = None) -> Verdict:
    """Drop a card as that user, and return what became of it."""
    path = (directory or host.cards) / f"{name}.json"
    beside = path.parent / f".tmp_{path.name}"
    beside.write_text(json.dumps(card))
    os.chown(beside, uid, uid)
    beside.rename(path)
    return host.verdict_of(path)


def rules(verdict: Verdict) -> list[str]:
    return [reason.rule for reason in verdict.reasons]


TENANTS = f"""
[[allow]]
user = {ANN}
names = ["ann-*"]
endpoints = ["default/*"]

[[allow]]
user = {BEN}
"""


def test_a_card_that_no_entry_covers_is_forbidden_and_owns_nothing(shared: Shared) -> None:
    """B70."""
    host = shared(TENANTS)
    assert put(host, ANN, "a", flat("ann-1")).standing == "serving"
    forbidden = put(host, ANN, "b", flat("gpt-4o"))
    assert (forbidden.standing, forbidden.serves) == ("forbidden", "nothing")
    assert rules(forbidden) == ["not_allowed"]
    assert forbidden.owner_uid == ANN
    with pytest.raises(NoSuchModel) as missing:
        host.client.resolve("gpt-4o")
    assert [verdict.standing for verdict in missing.value.waiting] == ["forbidden"]
    assert put(host, BEN, "c", flat("gpt-4o")).standing == "serving"
    assert put(host, 4713, "d", flat("x")).standing == "forbidden"
    assert put(host, ANN, "e", flat("ann-2", namespace="other")).standing == "forbidden"


def test_an_edit_that_is_not_allowed_withdraws_the_card(shared: Shared) -> None:
    host = shared(TENANTS)
    put(host, ANN, "a", flat("ann-1"))
    edited = put(host, ANN, "a", flat("ann-1", aliases=["llama"]))
    assert (edited.standing, edited.serves) == ("forbidden", "nothing")
    assert host.workers("ann-1") is None
    assert put(host, ANN, "a", flat("ann-1")).standing == "serving"


def test_a_file_that_is_given_to_another_is_judged_anew(shared: Shared) -> None:
    host = shared(TENANTS)
    path = host.cards / "a.json"
    assert put(host, ANN, "a", flat("gpt-4o")).standing == "forbidden"
    os.chown(path, BEN, BEN)
    assert host.verdict_of(path).standing == "serving"
    os.chown(path, ANN, ANN)
    assert host.verdict_of(path).standing == "forbidden"


def test_check_says_what_the_caller_may_not_claim(shared: Shared) -> None:
    host = shared(TENANTS)
    verdict = host.client.check(flat("gpt-4o")).verdict
    assert (verdict.standing, rules(verdict), verdict.owner_uid) == (
        "forbidden",
        ["not_allowed"],
        0,
    )


def test_a_tenant_is_who_can_write_his_directory(root: Path, shared: Shared) -> None:
    """Whatever user his workers are, as in containers that all run as root."""
    for tenant in ("ann", "ben"):
        (root / tenant).mkdir(mode=0o700)
    host = shared(
        '[[allow]]\ndirectory = "ann"\nnames = ["ann-*"]\n'
        '[[allow]]\ndirectory = "ben"\nnames = ["ben-*"]\n',
        directories=("ann", "ben"),
    )
    assert put(host, 0, "a", flat("ann-1"), root / "ann").standing == "serving"
    assert put(host, 0, "b", flat("ben-1"), root / "ben").standing == "serving"
    stray = put(host, 0, "c", flat("ann-2"), root / "ben")
    assert (stray.standing, rules(stray)) == ("forbidden", ["not_allowed"])
    assert stray.reasons[0].found == "ann-2"


def test_a_group_is_all_its_members(shared: Shared) -> None:
    members = [user for user in pwd.getpwall() if user.pw_uid not in (0, ANN)]
    if not members:
        pytest.skip("NOT TESTED: this host knows no user but root")
    user = members[0]
    host = shared(f"[[allow]]\ngroup = {user.pw_gid}\n")
    assert put(host, user.pw_uid, "a", flat("a")).standing == "serving"
    assert put(host, ANN, "b", flat("b")).standing == "forbidden"


# Whose a name is


def test_a_name_is_its_first_owners_until_he_leaves_also_after_a_kill(
    shared: Shared,
) -> None:
    host = shared('owner = "uid"\n')
    assert put(host, ANN, "a", flat("llama")).standing == "serving"
    blocked = put(host, BEN, "b", flat("llama", instance="b"))
    assert (blocked.standing, rules(blocked)) == ("blocked", ["other_owner"])
    assert (blocked.reasons[0].found, blocked.reasons[0].expected) == (str(BEN), str(ANN))
    assert put(host, ANN, "c", flat("llama", instance="c")).standing == "serving"
    asked = host.client.check(flat("llama", instance="d")).verdict
    assert (asked.standing, rules(asked)) == ("blocked", ["other_owner"])
    before = host.standings()
    host.daemon.kill()
    # Whoever judged anew would let this one come first.
    os.utime(host.cards / "b.json", (1_600_000_000, 1_600_000_000))
    again = shared('owner = "uid"\n')
    assert again.standings() == before
    again.remove(again.cards / "a.json")
    assert again.standings() == {"b.json": "blocked", "c.json": "serving"}
    again.remove(again.cards / "c.json")
    assert again.standings() == {"b.json": "serving"}


def test_garbage_in_the_place_of_anothers_card_ends_what_it_served(shared: Shared) -> None:
    host = shared('owner = "uid"\n')
    put(host, ANN, "a", flat("llama"))
    (host.cards / "a.json").write_text("{")
    assert host.verdict_of(host.cards / "a.json").serves == "previous"
    os.chown(host.cards / "a.json", BEN, BEN)
    verdict = host.verdict_of(host.cards / "a.json")
    assert (verdict.standing, verdict.serves, verdict.owner_uid) == ("invalid", "nothing", BEN)
    assert host.workers("llama") is None


# How many


def test_who_is_over_the_quota_waits_for_room_also_after_a_kill(shared: Shared) -> None:
    host = shared("quota = 2\n")
    assert [put(host, ANN, f"a{n}", flat(f"a{n}")).standing for n in range(4)] == [
        "serving",
        "serving",
        "forbidden",
        "forbidden",
    ]
    assert rules(host.verdict_of(host.cards / "a3.json")) == ["quota"]
    assert put(host, BEN, "b", flat("b")).standing == "serving"
    host.daemon.kill()
    os.utime(host.cards / "a3.json", (1_600_000_000, 1_600_000_000))
    again = shared("quota = 2\n")
    again.remove(again.cards / "a0.json")
    assert again.standings() == {
        "a1.json": "serving",
        "a2.json": "serving",
        "a3.json": "forbidden",
        "b.json": "serving",
    }
    assert again.workers("a2") is not None


def test_a_flood_of_one_user_leaves_the_others_room(shared: Shared) -> None:
    host = shared("")
    for number in range(1_003):
        path = host.cards / f"flood-{number}.json"
        path.write_text(json.dumps(flat(f"flood-{number}")))
        os.chown(path, ANN, ANN)
    assert host.client.sync().standings == {"serving": 1_000, "forbidden": 3}
    assert put(host, BEN, "b", flat("b")).standing == "serving"


# What cannot be read, and what is only a link


def test_a_card_that_the_daemon_may_not_read_is_shown_as_such(start: Start) -> None:
    """B102: the daemon is not root, workers have other uids, one keeps his card to himself."""
    prefix = without("unshare", "--user", "--map-user=1000")
    daemon = start(prefix=prefix).wait_ready()
    daemon.cards.chmod(0o1777)
    with daemon.client() as client:
        host = Host(daemon, client)
        assert put(host, ANN, "good", flat("good")).standing == "serving"
        secret = host.cards / "secret.json"
        write(secret, flat("secret"))
        secret.chmod(0o600)
        os.chown(secret, BEN, BEN)
        until(lambda: host.verdict_of(secret).standing == "invalid", "the file is out of reach")
        (reason,) = host.verdict_of(secret).reasons
        assert reason.rule == "unreadable"
        assert host.workers("good") is not None


@pytest.mark.parametrize("follow", [False, True])
def test_links_are_followed_only_where_the_operator_says_so(
    root: Path, shared: Shared, follow: bool
) -> None:
    host = shared(f"follow_symlinks = {str(follow).lower()}\n")
    write(root / "elsewhere.json", flat("m"))
    (host.cards / "m.json").symlink_to(root / "elsewhere.json")
    verdict = host.verdict_of(host.cards / "m.json")
    assert verdict.standing == ("serving" if follow else "invalid")


def test_a_link_is_its_makers_claim(root: Path, shared: Shared) -> None:
    host = shared(f"follow_symlinks = true\n{TENANTS}")
    write(root / "bens.json", flat("gpt-4o"))
    os.chown(root / "bens.json", BEN, BEN)
    link = host.cards / "m.json"
    link.symlink_to(root / "bens.json")
    os.lchown(link, ANN, ANN)
    assert host.verdict_of(link).standing == "forbidden"
