"""The lease that every file of a Dynamo store has, with short leases and real files."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from discoveryd.core.batch import Barred, Sighting
from discoveryd.core.card import Card
from discoveryd.daemon.disk.store import DynamoStore
from discoveryd.daemon.life.leases import TICK_SECONDS
from discoveryd.daemon.life.liveness import Liveness
from tests.daemon.disk import Collector, until

LEASE_SECONDS = 1.0
OLD_NS = 1_000_000_000
NAME = "ns%2Fbackend%2Fgenerate%2Fabc"
CARD = (
    b'{"type":"Model","namespace":"ns","component":"backend","endpoint":"generate",'
    b'"instance_id":2748,"card_json":{"display_name":"m"}%s}'
)
RECORD = b'{"type":"Endpoint","transport":{"tcp":"h:1/x"}}'


class Store:
    """A store with one card and its record, followed, and judged by the liveness gate."""

    def __init__(self, root: Path) -> None:
        self.sink = Collector()
        self.liveness = Liveness(self.sink)
        self.card = root / "v1" / "mdc" / NAME
        self.record = root / "v1" / "instances" / NAME
        for path, content in [(self.record, RECORD), (self.card, CARD % b"")]:
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        self.follower = DynamoStore(
            root,
            self._pass_on,
            lease_seconds=LEASE_SECONDS,
            record_grace_seconds=0.1,
            running=self.liveness.running,
            touched=self.liveness.touched,
        )

    async def _pass_on(self, sightings: Sequence[Sighting]) -> None:
        await self.sink(self.liveness.judge(sightings))

    @property
    def found(self) -> Card | Barred:
        found = self.sink.present[NAME].found
        assert isinstance(found, Card | Barred)
        return found

    @property
    def serves(self) -> bool:
        return isinstance(self.found, Card) and self.found.anchored

    @asynccontextmanager
    async def kept(self, *paths: Path) -> AsyncIterator[None]:
        """Keep these files alive meanwhile, as Dynamo does."""

        async def touch() -> None:
            while True:
                for path in paths:
                    os.utime(path)
                await anyio.sleep(LEASE_SECONDS / 4)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(touch)
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.liveness.run)
            tasks.start_soon(self.follower.run)
            with anyio.fail_after(15):
                await self.follower.scan()
            yield
            tasks.cancel_scope.cancel()
        self.liveness.close()


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kv")


async def test_files_that_are_touched_stay(store: Store) -> None:
    async with store.followed(), store.kept(store.card, store.record):
        assert store.serves
        await anyio.sleep(2.5 * LEASE_SECONDS)
        assert store.serves
        assert len(store.sink.batches) == 1


async def test_a_card_that_is_not_touched_expires_and_comes_back_with_a_touch(
    store: Store,
) -> None:
    async with store.followed(), store.kept(store.record):
        await until(lambda: isinstance(store.found, Barred))
        assert isinstance(store.found, Barred)
        assert [reason.rule for reason in store.found.reasons] == ["lease_expired"]
        os.utime(store.card)
        await until(lambda: store.serves)


async def test_a_record_that_is_not_touched_is_as_none_and_comes_back_with_a_touch(
    store: Store,
) -> None:
    async with store.followed(), store.kept(store.card):
        await until(lambda: isinstance(store.found, Card) and not store.found.anchored)
        assert isinstance(store.found, Card)
        assert store.found.url is None
        async with store.kept(store.record):
            await until(lambda: store.serves)


async def test_a_worker_whose_files_are_both_left_expires_once_and_for_all(store: Store) -> None:
    async with store.followed():
        await until(lambda: isinstance(store.found, Barred) and not store.found.card.anchored)
        await anyio.sleep(LEASE_SECONDS + 2 * TICK_SECONDS)
        assert isinstance(store.found, Barred)


async def test_what_was_left_long_ago_never_serves(store: Store) -> None:
    os.utime(store.card, ns=(OLD_NS, OLD_NS))
    async with store.followed():
        assert isinstance(store.found, Barred)
        assert store.sink.batches[0][0].found is store.found


async def test_a_record_left_long_ago_anchors_nobody(store: Store) -> None:
    os.utime(store.record, ns=(OLD_NS, OLD_NS))
    async with store.followed(), store.kept(store.card):
        assert isinstance(store.found, Card)
        assert not store.found.anchored
        async with store.kept(store.record):
            await until(lambda: store.serves)


@pytest.mark.parametrize(
    ("own", "counts"), [(b"30", LEASE_SECONDS), (b"1", 1.0)], ids=["longer", "not-longer"]
)
async def test_a_lease_of_the_cards_own_counts_if_it_is_shorter(
    store: Store, own: bytes, counts: float
) -> None:
    store.card.write_bytes(CARD % (b',"liveness":{"lease_seconds":' + own + b',"held":true}'))
    async with store.followed():
        assert isinstance(store.found, Barred)
        wanted = store.found.card.liveness
        assert wanted is not None
        assert wanted.lease_seconds == counts
        assert wanted.held
