import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from discoveryd.core.card import Card, Key
from discoveryd.core.verdict import Reason
from discoveryd.daemon.disk.store import DynamoStore
from discoveryd.daemon.disk.store_names import is_key_name, key_of, record_name
from tests.daemon.disk import Collector, Deaf, following, replace, until

REAL = Path(__file__).parents[1] / "data" / "dynamo-store"
PLACE = "ns/backend/generate/abc"


def encode(key: str) -> str:
    return quote(key, safe="").replace("_", "%5F").replace("-", "%2D").replace(".", "%2E")


def envelope(name: str, **members: object) -> bytes:
    inner = {"display_name": name, "source_path": "/models/A", **members}
    return json.dumps(
        {
            "type": "Model",
            "namespace": "ns",
            "component": "backend",
            "endpoint": "generate",
            "instance_id": 0xABC,
            "card_json": inner,
        }
    ).encode()


def record(address: str = "127.0.0.1:1/abc/ns/backend/generate", kind: str = "tcp") -> bytes:
    return json.dumps({"type": "Endpoint", "transport": {kind: address}}).encode()


def copy(store: Path, to: Path) -> None:
    """Copy a store as if its workers lived: each file is new."""
    shutil.copytree(store, to, copy_function=shutil.copyfile)


@pytest.fixture
def sink() -> Collector:
    return Collector()


class Store:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.mdc = root / "v1" / "mdc"
        self.instances = root / "v1" / "instances"
        self.mdc.mkdir(parents=True)
        self.instances.mkdir()

    def put(self, key: str, content: bytes) -> None:
        """Publish a card as Dynamo does."""
        self._link(self.mdc, key, content)

    def record(self, key: str, content: bytes) -> None:
        self._link(self.instances, key, content)

    @staticmethod
    def _link(folder: Path, key: str, content: bytes) -> None:
        beside = folder / ".tmp_0123456789abcdef"
        beside.write_bytes(content)
        (folder / encode(key)).unlink(missing_ok=True)
        (folder / encode(key)).hardlink_to(beside)
        beside.unlink()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kv")


def found(sink: Collector, key: str) -> Card:
    card = sink.present[encode(key)].found
    assert isinstance(card, Card)
    return card


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (b"demo%2Fbackend%2Fgenerate%2F7c3e", Key("demo", "backend", "generate", "7c3e")),
        (b"demo%2fbackend%2fgenerate%2f7c3e", Key("demo", "backend", "generate", "7c3e")),
        (b"a%2Fb%2Fc%2F1%2Fmy%5Flora", Key("a", "b", "c", "1", "my_lora")),
        (b"my%2Dns%2Fworker%5F1%2Fgen%2Ev2%2F1", Key("my-ns", "worker_1", "gen.v2", "1")),
        (b"ns%2Foc%2Fe155%2Fworker-1", Key("ns", "oc", "e155", "worker-1")),
        ("ns%2Foc%2Fé%2F1".encode(), Key("ns", "oc", "é", "1")),
    ],
)
def test_the_file_name_is_the_key(name: bytes, key: Key) -> None:
    assert key_of(name) == key


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"README", "1 segments"),
        (b"a%2Fb%2Fc", "3 segments"),
        (b"a%2Fb%2Fc%2Fd%2Fe%2Ff", "6 segments"),
        (b"a%2F%2Fc%2Fd", "empty"),
        (b"a%2Fb%2Fc%2F%FF", "not UTF-8"),
        (b"a%2Fb%2Fc%2F%00", "control characters"),
    ],
)
def test_any_other_file_name_is_no_key_and_the_reason_says_why(name: bytes, why: str) -> None:
    reason = key_of(name)
    assert isinstance(reason, Reason)
    assert reason.rule == "file_name"
    assert why in reason.message


def test_temporary_files_do_not_count() -> None:
    assert not is_key_name(b".tmp_0123456789abcdef")
    assert is_key_name(b"a%2Fb%2Fc%2F1")


@pytest.mark.parametrize("name", [b"a%2Fb%2Fc%2F1", b"a%2Fb%2Fc%2F1%2Flora"])
def test_an_adapter_has_the_record_of_its_base(name: bytes) -> None:
    assert record_name(name) == b"a%2Fb%2Fc%2F1"


@pytest.mark.parametrize("release", ["1.4.2", "1.5.0", "1.6.1"])
async def test_a_real_store_is_read_whole(release: str, tmp_path: Path, sink: Collector) -> None:
    copy(REAL / release, tmp_path / "kv")
    async with following(DynamoStore(tmp_path / "kv", sink)):
        cards = [sighting.found for sighting in sink.present.values()]
        assert len(sink.batches) == 1
        assert len(cards) == len(list((tmp_path / "kv/v1/mdc").iterdir()))
        for card in cards:
            assert isinstance(card, Card)
            assert card.anchored == (card.key.component == "backend")
            assert (card.url is not None) == card.anchored


async def test_the_real_cards_of_1_6_1_have_their_names_and_address(
    tmp_path: Path, sink: Collector
) -> None:
    copy(REAL / "1.6.1", tmp_path / "kv")
    async with following(DynamoStore(tmp_path / "kv", sink)):
        base = found(sink, "demo/backend/generate/7c3ed918996b7eea")
        assert base.names == ("Org/Tiny-1.5", "tiny", "Tiny Latest")
        assert base.url == "dynamo+tcp://127.0.0.1:33863/7c3ed918996b7eea/demo/backend/generate"
        adapter = found(sink, "demo/backend/generate/7c3ed918996b7eea/my_lora_v1")
        assert (adapter.display_name, adapter.url) == ("My LoRA/v1", base.url)
        assert adapter.adapter
        assert not adapter.half_adapter
        assert adapter.key.base == base.key


async def test_a_card_and_its_record_are_one_batch(store: Store, sink: Collector) -> None:
    directory = DynamoStore(store.root, sink, arm=Deaf)
    async with following(directory):
        store.record(PLACE, record())
        store.put(PLACE, envelope("m"))
        await directory.look([encode(PLACE).encode()])
        assert len(sink.batches) == 1
        assert found(sink, PLACE).anchored


async def test_files_are_named_by_the_folder_that_holds_the_cards(
    store: Store, sink: Collector
) -> None:
    store.put(PLACE, envelope("m"))
    directory = DynamoStore(store.root, sink)
    async with following(directory):
        assert directory.status.path == str(store.root)
        assert directory.display == str(store.mdc)
        assert sink.batches[0][0].file == f"{store.mdc}/{encode(PLACE)}"


async def test_a_card_without_record_is_unanchored_until_it_comes(
    store: Store, sink: Collector
) -> None:
    async with following(DynamoStore(store.root, sink)):
        store.put(PLACE, envelope("m"))
        store.put(f"{PLACE}/lora", envelope("l", lora={"name": "l"}))
        await until(lambda: len(sink.present) == 2)
        assert not found(sink, PLACE).anchored
        assert found(sink, PLACE).url is None
        store.record(PLACE, record())
        await until(lambda: found(sink, PLACE).anchored)
        assert found(sink, f"{PLACE}/lora").anchored
        assert len(sink.batches[-1]) == 2


async def test_a_changed_record_changes_its_cards(store: Store, sink: Collector) -> None:
    store.record(PLACE, record("h:1/x"))
    store.put(PLACE, envelope("m"))
    store.put("ns/backend/generate/other", envelope("m"))
    async with following(DynamoStore(store.root, sink)):
        assert found(sink, PLACE).url == "dynamo+tcp://h:1/x"
        store.record(PLACE, record("h:2/x"))
        await until(lambda: found(sink, PLACE).url == "dynamo+tcp://h:2/x")
        assert len(sink.batches[-1]) == 1


async def test_a_record_that_is_only_replaced_withdraws_nobody(
    store: Store, sink: Collector
) -> None:
    store.record(PLACE, record())
    store.put(PLACE, envelope("m"))
    directory = DynamoStore(store.root, sink, arm=Deaf)
    async with following(directory):
        (store.instances / encode(PLACE)).unlink()
        await directory.scan()
        store.record(PLACE, record())
        await directory.scan()
        assert len(sink.batches) == 1


async def test_a_record_that_is_gone_for_long_withdraws_its_cards(
    store: Store, sink: Collector
) -> None:
    store.record(PLACE, record())
    store.put(PLACE, envelope("m"))
    directory = DynamoStore(store.root, sink, record_grace_seconds=0.1, rescan_seconds=3600)
    async with following(directory):
        (store.instances / encode(PLACE)).unlink()
        await until(lambda: not found(sink, PLACE).anchored)
        store.record(PLACE, record())
        await until(lambda: found(sink, PLACE).anchored)


async def test_a_worker_that_leaves_takes_its_cards_along(store: Store, sink: Collector) -> None:
    store.record(PLACE, record())
    store.put(PLACE, envelope("m"))
    async with following(DynamoStore(store.root, sink)):
        (store.mdc / encode(PLACE)).unlink()
        (store.instances / encode(PLACE)).unlink()
        await until(lambda: not sink.present)


@pytest.mark.parametrize(
    ("content", "url"),
    [
        (record("127.0.0.1:1/p"), "dynamo+tcp://127.0.0.1:1/p"),
        (record("subject.of-it", "nats_tcp"), "dynamo+nats-tcp://subject.of-it"),
        (record("http://h:8/v1/rpc", "http"), "dynamo+http://h:8/v1/rpc"),
    ],
)
async def test_the_address_is_the_transport_and_what_it_says(
    content: bytes, url: str, store: Store, sink: Collector
) -> None:
    store.record(PLACE, content)
    store.put(PLACE, envelope("m"))
    async with following(DynamoStore(store.root, sink)):
        assert found(sink, PLACE).url == url


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'{"type":"Endpoint"}', b'{"type":"Model","transport":{"tcp":"h:1"}}',
        b'{"type":"Endpoint","transport":{"tcp":7}}', b'{"type":"Endpoint","transport":{}}',
        record(""), record("a b"), record("a\n"), record("h:1", "t p"), record("\x1b[1m"),
        b'{"type":"Endpoint","transport":"tcp"}', b"\xff",
    ],
)  # fmt: skip
async def test_a_bad_record_is_as_none(content: bytes, store: Store, sink: Collector) -> None:
    store.record(PLACE, content)
    store.put(PLACE, envelope("m"))
    async with following(DynamoStore(store.root, sink)):
        assert not found(sink, PLACE).anchored


async def test_what_is_no_file_is_ignored_and_what_is_no_key_is_invalid(
    store: Store, sink: Collector
) -> None:
    (store.mdc / "sub").mkdir()
    (store.mdc / encode("a/b/c/dir")).mkdir()
    (store.mdc / ".tmp_1").write_bytes(envelope("no"))
    (store.mdc / "README").write_bytes(b"hello")
    (store.mdc / encode("a/b/c/link")).symlink_to("README")
    (store.mdc / encode("a/b/c/1")).write_bytes(b"{}")
    directory = DynamoStore(store.root, sink)
    async with following(directory):
        assert {name: sink.rule(name) for name in sink.present} == {
            "README": "file_name",
            encode("a/b/c/link"): "symbolic_link",
            encode("a/b/c/1"): sink.rule(encode("a/b/c/1")),
        }
        assert directory.status.files == 3
        (store.mdc / "README").unlink()
        await until(lambda: "README" not in sink.present)


async def test_the_keep_alive_of_a_store_is_no_news(store: Store, sink: Collector) -> None:
    store.record(PLACE, record())
    store.put(PLACE, envelope("m"))
    directory = DynamoStore(store.root, sink)
    async with following(directory):
        (store.mdc / encode(PLACE)).touch()
        (store.instances / encode(PLACE)).touch()
        await directory.scan()
        assert len(sink.batches) == 1


async def test_a_store_may_come_later_and_piece_by_piece(tmp_path: Path, sink: Collector) -> None:
    directory = DynamoStore(tmp_path / "kv", sink, rescan_seconds=3600)
    async with following(directory):
        status = directory.status
        assert (status.layout, status.watching) == ("dynamo", False)
        assert f"waiting for directory {tmp_path}/kv/v1/mdc" in (status.problem or "")
        mdc = tmp_path / "kv" / "v1" / "mdc"
        mdc.mkdir(parents=True)
        replace(mdc / encode(PLACE), envelope("m"))
        await until(lambda: encode(PLACE) in sink.present)
        assert not found(sink, PLACE).anchored
        (instances := tmp_path / "kv" / "v1" / "instances").mkdir()
        replace(instances / encode(PLACE), record())
        await until(lambda: found(sink, PLACE).anchored)
        await until(lambda: directory.status.watching)
        assert directory.status.problem is None
        shutil.rmtree(tmp_path / "kv")
        await until(lambda: not sink.present)


async def test_a_file_that_turns_into_a_directory_is_gone(store: Store, sink: Collector) -> None:
    store.put(PLACE, envelope("m"))
    directory = DynamoStore(store.root, sink)
    async with following(directory):
        (store.mdc / encode(PLACE)).unlink()
        (store.mdc / encode(PLACE)).mkdir()
        await until(lambda: not sink.present)
        assert directory.status.files == 0
