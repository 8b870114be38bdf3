"""Who may drop, who may ask, and what the daemon still sees from its sandbox."""

import json

import pytest

from tests.system.running import until
from tests.systemd.host import ASKER, CARDS, OTHER_WORKER, PATIENCE, SOCKET, WORKER, Host

pytestmark = pytest.mark.timeout(PATIENCE)

STORE = "/tmp/dynamo_store_kv"  # noqa: S108 - Dynamo puts it there
RECORD = "\x1e\n"
"""What is around each reply of a stream (RFC 7464)."""


def test_one_user_drops_and_another_resolves(host: Host) -> None:
    host.put("m.json", user=WORKER, display_name="m", url="http://127.0.0.1:1")
    assert host.ask("sync m.json", user=ASKER)["verdicts"][0]["standing"] == "serving"
    assert host.urls("m", user=ASKER) == ["http://127.0.0.1:1"]
    assert host.must(f"stat -c '%U %G %a' {CARDS}/m.json") == f"{WORKER} discoveryd-workers 644\n"


def test_a_user_outside_the_group_cannot_drop(host: Host) -> None:
    done = host.run(f"echo '{{}}' > {CARDS}/m.json", user=ASKER)
    assert done.status != 0
    assert "Permission denied" in done.errors
    assert host.ask("sync")["standings"] == {}


def test_a_worker_cannot_touch_the_card_of_another(host: Host) -> None:
    host.put("m.json", user=WORKER, display_name="m", url="http://127.0.0.1:1")
    card = f"{CARDS}/m.json"
    for attempt in (f"rm -f {card}", f"mv -f {card} {card}.old", f"echo '{{}}' > {card}"):
        assert host.run(attempt, user=OTHER_WORKER).status != 0, attempt
    assert host.urls("m") == ["http://127.0.0.1:1"]


def test_a_card_that_the_daemon_cannot_read_says_so_and_harms_no_other(host: Host) -> None:
    host.must(f'umask 077 && echo \'{{"display_name": "n"}}\' > {CARDS}/n.json', user=WORKER)
    host.put("m.json", user=OTHER_WORKER, display_name="m", url="http://127.0.0.1:1")
    (verdict,) = host.ask("sync n.json")["verdicts"]
    assert verdict["standing"] == "invalid"
    assert "read" in verdict["reasons"][0]["message"]
    assert host.urls("m") == ["http://127.0.0.1:1"]


@pytest.mark.parametrize("user", [WORKER, None])
def test_the_death_of_a_process_of_another_user_is_seen_at_once(
    host: Host, user: str | None
) -> None:
    with host.box.beside("echo $$; exec sleep 3600", user=user) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        (told,) = host.must(f"cut -d ' ' -f 22 /proc/{pid}/stat").split()
        liveness = {"pid": pid, "pid_start": int(told)}
        host.put("m.json", display_name="m", url="http://127.0.0.1:1", liveness=liveness)
        host.ask("sync m.json")
        assert host.urls("m") == ["http://127.0.0.1:1"]
        host.must(f"kill -9 {pid}")
        until(lambda: host.urls("m") == [], "the card goes with its process")
    assert host.ask("explain m.json")["verdicts"][0]["reasons"][0]["rule"] == "process_gone"


def test_a_start_time_of_another_process_is_seen_through_the_sandbox(host: Host) -> None:
    with host.box.beside("echo $$; exec sleep 3600", user=WORKER) as process:
        assert process.stdout is not None
        liveness = {"pid": int(process.stdout.readline()), "pid_start": 1}
        host.put("m.json", display_name="m", liveness=liveness)
        (verdict,) = host.ask("sync m.json")["verdicts"]
    assert verdict["standing"] == "expired"


def test_only_the_owner_of_a_card_or_root_may_hold_it(host: Host) -> None:
    host.put("m.json", user=WORKER, display_name="m", liveness={"held": True})
    told = json.dumps({"files": ["m.json"]})
    hold = f"varlinkctl --json=short --more call {SOCKET} io.discoveryd.Models.Hold '{told}'"
    done = host.run(hold, user=OTHER_WORKER)
    assert done.status != 0
    assert "PermissionDenied" in done.errors + done.output
    with host.box.beside(hold, user=WORKER):
        until(lambda: host.ask("explain m.json")["verdicts"][0]["standing"] == "serving", "a hold")


def test_names_belong_to_users_through_the_sandbox(host: Host) -> None:
    host.configure('owner = "uid"\n')
    host.must("systemctl reload discoveryd.service")
    host.put("m.json", user=WORKER, display_name="m", url="http://127.0.0.1:1")
    host.ask("sync m.json")
    host.put("n.json", user=OTHER_WORKER, display_name="m", url="http://127.0.0.1:2")
    (verdict,) = host.ask("sync n.json")["verdicts"]
    assert verdict["standing"] == "blocked"
    assert verdict["reasons"][0]["rule"] == "other_owner"
    uid = int(host.must(f"id -u {OTHER_WORKER}"))
    assert verdict["owner_uid"] == uid


def test_systemds_own_client_introspects_and_calls(host: Host) -> None:
    host.put("m.json", display_name="m", url="http://127.0.0.1:1")
    host.ask("sync m.json")
    definition = host.must(f"varlinkctl introspect {SOCKET} io.discoveryd.Models", user=ASKER)
    assert "method Resolve(" in definition
    assert "io.discoveryd.Models" in host.must(f"varlinkctl info {SOCKET}", user=ASKER)
    done = host.call("Resolve", {"name": "m"}, user=ASKER)
    assert json.loads(done.output)["workers"][0]["url"] == "http://127.0.0.1:1"
    missed = host.call("Resolve", {"name": "nobody"}, user=ASKER)
    assert missed.status != 0
    assert "io.discoveryd.Models.NoSuchModel" in missed.errors + missed.output


def test_systemds_own_client_follows_a_stream(host: Host) -> None:
    watch = f"varlinkctl --json=short --more call {SOCKET} io.discoveryd.Models.Watch '{{}}'"
    with host.box.beside(watch, user=ASKER) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline().strip(RECORD))["reset"] is True
        host.put("m.json", display_name="m", url="http://127.0.0.1:1")
        (change,) = json.loads(watching.stdout.readline().strip(RECORD))["changed"]
        assert change["url"] == "http://127.0.0.1:1"


def test_the_daemons_own_user_cannot_write_where_cards_are(host: Host) -> None:
    done = host.run(
        f"nsenter --target {host.pid()} --mount setpriv --reuid=discoveryd --regid=discoveryd"
        f" --clear-groups sh -c 'echo > {CARDS}/m.json; echo > /run/discoveryd/x; echo > /tmp/x'"
    )
    assert done.errors.count("cannot create") == 2, done.errors  # /tmp is its own


def test_a_store_in_the_private_tmp_is_a_problem_that_says_what_to_do(host: Host) -> None:
    host.configure(f'cards = ["{CARDS}"]\ndynamo = ["{STORE}"]\n')
    host.must("systemctl restart discoveryd.service")
    status = host.ask("status")
    assert not status["healthy"]
    assert "PrivateTmp=" in " ".join(status["problems"])


def test_a_store_below_tmp_is_served_with_the_drop_in(host: Host) -> None:
    host.configure(f'cards = ["{CARDS}"]\ndynamo = ["{STORE}"]\n')
    host.drop_in("discoveryd.service", host.must("cat /clone/systemd/drop-ins/dynamo-store.conf"))
    host.must("systemctl restart discoveryd.service")
    host.must(f"cp -r /store {STORE}", user=ASKER)
    until(lambda: host.urls("Org/Tiny-1.5") != [], "a model of the store")
    assert host.ask("status")["problems"] == []
    host.must(f"rm -r {STORE}")
