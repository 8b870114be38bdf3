"""What there is to get over HTTP, page by page, without any socket."""

import json
import time
from typing import Any

import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.http.site import SLICE, Long
from tests.core.cards import card
from tests.daemon.sites import Place

LLAMA = card(
    "acme/llama",
    ("chat",),
    source="/models/llama",
    url="http://127.0.0.1:8001/base/",
    context_length=8192,
    labels={"zone.a": "1"},
)
ADAPTER = card(
    "legal",
    source="/models/llama",
    at="ns/c/e/1/legal",
    lora=True,
    url="http://127.0.0.1:8001/base/",
)
PREFILL = card("deep", at="ns/d/e/1", worker_type="prefill", needs=(("decode",),))


# Models


async def test_a_model_has_openais_members_and_those_of_vllm_that_are_known() -> None:
    place = Place({"gpt-4o": "acme/llama"})
    began = time.time()
    await place.drop(LLAMA, ADAPTER)
    models = await place.models()
    assert list(models) == ["acme/llama", "chat", "legal", "gpt-4o"]
    created = models["acme/llama"]["created"]
    assert int(began) <= created <= time.time()
    common: dict[str, Any] = {"object": "model", "owned_by": "discoveryd", "created": created}
    of_llama = {"root": "/models/llama", "max_model_len": 8192, "ready": True}
    assert models["acme/llama"] == common | of_llama | {"id": "acme/llama"}
    for alias in ("chat", "gpt-4o"):
        assert models[alias] == common | of_llama | {"id": alias, "alias_of": "acme/llama"}
    assert models["legal"] == common | {
        "id": "legal",
        "root": "/models/llama",
        "parent": "acme/llama",
        "ready": True,
    }


async def test_the_shortest_context_of_the_workers_is_told() -> None:
    place = Place()
    await place.drop(
        card("m", at="a/c/e/1", source="/m", context_length=100),
        card("m", at="b/c/e/2", source="/m", context_length=50),
        card("m", at="c/c/e/3", source="/m"),
    )
    assert (await place.models())["m"]["max_model_len"] == 50


async def test_without_any_card_the_list_is_empty() -> None:
    assert await Place().read("/v1/models") == (200, {"object": "list", "data": []})


async def test_a_name_that_is_not_ready_is_listed_on_demand_only() -> None:
    place = Place()
    await place.drop(LLAMA, PREFILL)
    assert "deep" not in await place.models()
    everything = await place.models("/v1/models?all=1")
    assert (everything["deep"]["ready"], everything["chat"]["ready"]) == (False, True)
    assert "deep" not in await place.models("/v1/models?all=0")
    status, body = await place.read("/v1/models/deep")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "is not ready" in body["error"]["message"]
    assert (await place.read("/v1/models/deep?all=1"))[0] == 200


@pytest.mark.parametrize("quoted", ["acme/llama", "acme%2Fllama", "%61cme/llama"])
async def test_a_model_is_found_by_its_name_with_slashes_and_all(quoted: str) -> None:
    place = Place()
    await place.drop(LLAMA)
    status, body = await place.read(f"/v1/models/{quoted}")
    assert (status, body["id"]) == (200, "acme/llama")


async def test_names_in_all_letters_and_signs_are_found() -> None:
    place = Place()
    await place.drop(card("mödel 名?#%"))
    status, body = await place.read("/v1/models/m%C3%B6del%20%E5%90%8D%3F%23%25")
    assert (status, body["id"]) == (200, "mödel 名?#%")


async def test_a_name_that_nobody_serves_is_an_error_of_openais_shape_with_near_ones() -> None:
    place = Place()
    await place.drop(LLAMA)
    status, body = await place.read("/v1/models/acme/Llama")
    assert status == 404
    assert body["error"] == {
        "message": 'nobody serves the model "acme/Llama"; did you mean "acme/llama"?'
        " See discoveryctl explain",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }


async def test_a_name_that_is_no_utf_8_is_a_bad_request() -> None:
    status, body = await Place().read("/v1/models/%FF")
    assert status == 400
    assert "UTF-8" in body["error"]["message"]


async def test_a_long_list_comes_in_slices_and_lacks_what_went_meanwhile() -> None:
    place = Place()
    count = 3 * SLICE
    await place.drop(*(card(f"m{n}", at=f"ns/c{n}/e/1") for n in range(count)))
    page = await place.site.get("/v1/models")
    assert isinstance(page, Long)
    pieces = [await anext(page.pieces), await anext(page.pieces)]
    last = f"/cards/{count - 1}.json"
    await place.writer.apply([Sighting(file=last, found=None)])
    pieces += [piece async for piece in page.pieces]
    assert len(pieces) == 5
    listed = [model["id"] for model in json.loads(b"".join(pieces))["data"]]
    assert listed == [f"m{n}" for n in range(count - 1)]


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/models/", "/v1/modelsx", "/metrics/", "//"])
async def test_elsewhere_there_is_nothing(target: str) -> None:
    status, body = await Place().read(target)
    assert status == 404
    assert body["error"]["message"]


# Health


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({}, 200),
        ({"watching": False}, 503),
        ({"watching": False, "backend": "polling"}, 200),
        ({"problem": "/cards is gone"}, 503),
    ],
    ids=str,
)
async def test_health_is_whether_every_directory_is_watched(
    members: dict[str, object], status: int
) -> None:
    place = Place()
    place.change_directory(**members)
    problems = [members["problem"]] if "problem" in members else []
    assert await place.read("/healthz") == (
        status,
        {"watching": status == 200, "problems": problems},
    )


async def test_a_daemon_whose_rounds_have_stopped_is_not_healthy() -> None:
    place = Place()
    place.stopped = "/cards should have been looked at 40 s ago"
    assert await place.read("/healthz") == (503, {"watching": False, "problems": [place.stopped]})


# Prometheus' discovery


async def test_each_worker_that_speaks_http_is_a_target_with_labels() -> None:
    place = Place()
    await place.drop(LLAMA, ADAPTER)
    status, body = await place.read("/sd/prometheus")
    assert status == 200
    [target] = body
    assert target["targets"] == ["127.0.0.1:8001"]
    assert target["labels"] == {
        "__scheme__": "http",
        "__metrics_path__": "/base/metrics",
        "__meta_discoveryd_model": "acme/llama",
        "__meta_discoveryd_key": "ns/c/e/1",
        "__meta_discoveryd_file": "/cards/0.json",
        "__meta_discoveryd_namespace": "ns",
        "__meta_discoveryd_component": "c",
        "__meta_discoveryd_endpoint": "e",
        "__meta_discoveryd_instance": "1",
        "__meta_discoveryd_worker_type": "aggregated",
        "__meta_discoveryd_accepting": "true",
        "__meta_discoveryd_label_zone_a": "1",
    }


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://gpu-1", "gpu-1:80"),
        ("https://gpu-1/", "gpu-1:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("grpc://127.0.0.1:5", None),
        ("unix:///run/worker", None),
        ("http://\u2100.example", None),
        (None, None),
    ],
)
async def test_a_target_is_a_host_and_a_port_and_other_workers_are_none(
    url: str | None, address: str | None
) -> None:
    place = Place()
    await place.drop(card("m", url=url))
    _, body = await place.read("/sd/prometheus")
    assert [target["targets"] for target in body] == ([] if address is None else [[address]])


async def test_a_url_is_scraped_once_and_a_draining_worker_goes_on_being_scraped() -> None:
    place = Place()
    url = "http://127.0.0.1:1"
    await place.drop(
        card("m", at="ns/c/e/1", url=url, accepting=False),
        card("n", at="ns/d/e/1", url=url),
    )
    _, [target] = await place.read("/sd/prometheus")
    assert target["labels"]["__meta_discoveryd_accepting"] == "false"
