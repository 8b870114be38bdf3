"""Our async client and live view ask a real daemon, on asyncio and trio, and outlive it."""

import json
import signal
from contextlib import aclosing
from typing import Any

import anyio
import anyio.to_thread
import pytest

from discoveryd.client import (
    AsyncClient,
    CallRefused,
    Client,
    Models,
    NoDaemon,
    NoSuchFile,
    NoSuchModel,
)
from tests.client.backends import on_both, until
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.running import Daemon
from tests.system.running import until as wait_until

ALIASES = '[aliases]\n"gpt" = "llama"\n'


def llama(port: int, **members: Any) -> Json:
    return {
        "display_name": "llama",
        "aliases": ["chat"],
        "source_path": "/models/llama",
        "url": f"http://127.0.0.1:{port}",
        **members,
    }


def adapter(port: int) -> Json:
    return {
        "display_name": "legal",
        "source_path": "/models/llama",
        "url": f"http://127.0.0.1:{port}",
        "lora": {"name": "legal"},
    }


def put(daemon: Daemon, name: str, card: Json) -> None:
    write(daemon.cards / f"{name}.json", card)


@on_both
async def test_the_async_client_is_answered_as_the_blocking_one(host: Host) -> None:
    host.put("1", llama(8001))
    host.put("2", llama(8002))
    host.put("refused", {"display_name": "other", "component": "%2Fmodels%2Fllama"})
    plain = host.client
    async with AsyncClient(str(host.daemon.socket)) as client:
        assert await client.resolve("chat") == plain.resolve("chat")
        assert await client.list() == plain.list()
        assert await client.workers("llama") == plain.workers("llama")
        assert await client.explain() == plain.explain()
        assert (await client.check({"display_name": "new"})).verdict.good
        assert (await client.sync()).standings == plain.sync().standings
        assert (await client.sync("1.json")).verdicts == plain.sync("1.json").verdicts
        assert await client.history("1.json") == plain.history("1.json")
        assert (await client.status()).names == plain.status().names == 2
        with pytest.raises(NoSuchModel) as missing:
            await client.resolve("Chat")
        assert missing.value.similar == ("chat",)
        with pytest.raises(NoSuchFile):
            await client.explain(file="none.json")


@on_both
async def test_a_held_card_serves_until_the_hold_is_closed(host: Host) -> None:
    card = llama(8001, liveness={"held": True})
    assert host.put("1", card).standing == "expired"
    async with AsyncClient(str(host.daemon.socket)) as client:
        async with aclosing(client.hold("1.json")) as replies:
            assert (await anext(replies)).verdicts[0].good
            write(host.cards / "1.json", {**card, "accepting": 3})
            assert (await anext(replies)).verdicts[0].standing == "invalid"
            write(host.cards / "1.json", card)
            assert (await anext(replies)).verdicts[0].good
        with anyio.fail_after(10):
            while (await client.sync("1.json")).verdicts[0].good:
                await anyio.sleep(0.002)  # between two looks
        with pytest.raises(NoSuchFile):
            await anext(client.hold("none.json"))


def test_the_blocking_client_holds_as_well(host: Host) -> None:
    host.put("1", llama(8001, liveness={"held": True}))
    replies = host.client.hold("1.json")
    assert next(replies).verdicts[0].good
    assert host.workers("llama") is not None
    replies.close()
    wait_until(lambda: host.workers("llama") is None, "the card is let go")


@on_both
async def test_many_tasks_share_one_connection(host: Host) -> None:
    for number in range(20):
        put(host.daemon, str(number), {"display_name": f"model-{number}"})
    host.client.sync()
    connections = host.client.status().connections
    names: list[str] = []

    async def ask(number: int) -> None:
        names.append((await client.resolve(f"model-{number}")).name)

    async with AsyncClient(str(host.daemon.socket)) as client:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, number)
        assert (await client.status()).connections == connections + 1
    assert sorted(names) == sorted(f"model-{number}" for number in range(20))


# The live view


def assert_agrees(models: Models, client: Client) -> None:
    """Assert that the view says what the daemon says, where both speak of one revision."""
    names = client.list()
    assert models.cursor == names.cursor
    assert sorted(models.names(), key=lambda line: line.name) == sorted(
        names.names, key=lambda line: line.name
    )
    assert models.workers() == client.workers().workers
    for line in names.names:
        assert models.resolve(line.name) == client.resolve(line.name)
        assert models.workers(line.name) == client.workers(line.name).workers
    with pytest.raises(NoSuchModel):
        models.resolve("nobody")


async def caught_up(models: Models, daemon: Daemon, client: Client) -> None:
    """Return once the view has come to the daemon's present revision."""
    # What changes nothing that is served is not told, but for its revision at the next change.
    put(daemon, "marker", {"display_name": f"marker-{models.cursor.revision}"})
    await anyio.to_thread.run_sync(applied, client)
    cursor = client.list().cursor
    await until(lambda: models.cursor == cursor, f"the view comes to {cursor}")


def applied(client: Client) -> None:
    client.sync()


@on_both
async def test_the_view_says_what_the_daemon_says_at_every_revision(
    root: Any, start: Start
) -> None:
    (root / "config").write_text(ALIASES)
    arguments = ["--cards", str(root / "cards"), "--socket", str(root / "s")]
    (root / "cards").mkdir()
    daemon = start([*arguments, "--config", str(root / "config")]).wait_ready()
    steps: list[tuple[str, Json | None]] = [
        ("1", llama(8001)),
        ("2", llama(8002, labels={"zone": "b"})),
        ("legal", adapter(8002)),
        ("1", llama(8001, accepting=False)),
        ("2", llama(8002, aliases=["chat", "talk"])),
        ("1", llama(8001, aliases=["talk"])),
        ("prefill", {"display_name": "big", "worker_type": "prefill", "needs": [["decode"]]}),
        ("decode", {"display_name": "big", "worker_type": "decode", "needs": [["prefill"]]}),
        ("2", None),
        ("2", llama(8002)),
        ("1", None),
    ]
    with daemon.client() as client:
        async with Models.follow(str(daemon.socket)) as models:
            for name, card in steps:
                if card is None:
                    (daemon.cards / f"{name}.json").unlink()
                else:
                    put(daemon, name, card)
                await anyio.to_thread.run_sync(applied, client)
                await caught_up(models, daemon, client)
                assert_agrees(models, client)
            kinds = {line.name: line.kind for line in models.names()}
            assert kinds["gpt"] == "operator"
            assert kinds["legal"] == "adapter"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@on_both
async def test_the_view_outlives_its_daemon_and_goes_on_with_the_next(
    start: Start, number: signal.Signals
) -> None:
    daemon = start().wait_ready()
    put(daemon, "1", llama(8001))
    with daemon.client() as client:
        applied(client)
        async with Models.follow(str(daemon.socket)) as models:
            epoch = models.cursor.epoch
            daemon.send(number)
            await anyio.to_thread.run_sync(daemon.process.wait)
            await until(lambda: not models.connected, "the connection is lost")
            assert models.stale_seconds > 0
            assert len(models.resolve("chat").workers) == 1
            put(daemon, "2", llama(8002))
            second = start()
            await until(lambda: len(models.resolve("chat").workers) == 2, "the change meanwhile")
            second.wait_ready()
            assert models.connected
            assert models.stale_seconds == 0.0
            assert models.cursor.epoch == epoch
            await caught_up(models, second, client)
            assert_agrees(models, client)


@on_both
async def test_a_call_in_a_restart_is_answered_by_the_next_daemon(start: Start) -> None:
    daemon = start().wait_ready()
    put(daemon, "1", llama(8001))
    async with AsyncClient(str(daemon.socket)) as client:
        await client.sync()
        daemon.stop()
        with pytest.raises(NoDaemon):
            await client.resolve("llama")
        start().wait_ready()
        assert (await client.resolve("llama")).ready


@on_both
async def test_reload_is_for_the_daemons_user(host: Host) -> None:
    async with AsyncClient(str(host.daemon.socket)) as client:
        try:
            asked = await client.reload()
        except CallRefused as refused:
            raise AssertionError(json.dumps(dict(refused.parameters))) from refused
    assert asked.changed == ()
    assert host.client.reload() == asked
