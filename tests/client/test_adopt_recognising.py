"""Which kind of server answers, and what it is asked."""

from collections.abc import Mapping
from typing import Any

import pytest

from discoveryd.client.adopting.listings import Unreadable
from discoveryd.client.adopting.recognising import Rejected, recognise
from tests.client.listed import ANSWERS, answers


class Server:
    """Answers by path: a JSON value, or a status."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.answers = given
        self.asked: list[str] = []

    async def __call__(self, path: str, /) -> object:
        self.asked.append(path)
        answer = self.answers.get(path, self.answers.get("*", 404))
        if isinstance(answer, int):
            raise Rejected(answer)
        return answer


@pytest.mark.parametrize("server", ANSWERS)
async def test_each_kind_of_server_is_recognised(server: str) -> None:
    kind = await recognise(Server(answers(server)))
    assert kind.label == server.removesuffix("-router").removesuffix("-v0")


@pytest.mark.parametrize(
    ("server", "models", "everything"),
    [
        ("vllm", 3, 3),
        ("sglang", 2, 2),
        ("llama.cpp", 1, 1),
        ("llama.cpp-router", 2, 4),
        ("ollama", 3, 4),
        ("lmstudio", 2, 3),
        ("lmstudio-v0", 2, 3),
        ("openai", 1, 1),
    ],
)
async def test_each_kind_is_asked_for_what_is_loaded_or_for_everything(
    server: str, models: int, everything: int
) -> None:
    ask = Server(answers(server))
    kind = await recognise(ask)
    ask.asked.clear()
    assert len((await kind.listing(ask, False)).models) == models
    assert all(path in ask.answers for path in set(ask.asked) - {"/model_info"})
    assert len((await kind.listing(ask, True)).models) == everything


async def test_an_old_sglang_is_asked_by_the_old_path_of_its_model_info() -> None:
    ask = Server(answers("sglang"))
    kind = await recognise(ask)
    listing = await kind.listing(ask, False)
    assert listing.models[0].source == "/models/qwen3-8b"
    ask.answers = {**ask.answers, "/model_info": {"model_path": "/new"}}
    assert (await kind.listing(ask, False)).models[0].source == "/new"


async def test_a_routers_props_are_not_asked_since_they_are_nobodys() -> None:
    ask = Server(answers("llama.cpp-router"))
    kind = await recognise(ask)
    await kind.listing(ask, False)
    assert "/props" not in ask.asked


async def test_an_ollama_with_no_models_at_all_is_recognised() -> None:
    empty = {"/v1/models": {"object": "list", "data": None}, "/api/ps": {"models": []}}
    assert (await recognise(Server(empty))).label == "ollama"


async def test_a_lmstudio_that_denies_the_usual_path_is_recognised() -> None:
    given = answers("lmstudio")
    del given["/v1/models"]
    assert (await recognise(Server(given))).label == "lmstudio"


async def test_odd_entries_do_not_hide_who_the_server_is() -> None:
    given = {"/v1/models": {"data": [7, {"owned_by": 7}, {"owned_by": "vllm"}]}}
    assert (await recognise(Server(given))).label == "vllm"


async def test_a_server_that_keeps_its_listing_to_itself_is_not_recognised() -> None:
    with pytest.raises(Rejected) as caught:
        await recognise(Server({"*": 401}))
    assert caught.value.status == 401


async def test_what_lists_nothing_anywhere_is_not_recognised() -> None:
    with pytest.raises(Rejected):
        await recognise(Server({}))
    with pytest.raises(Unreadable):
        await recognise(Server({"*": {"error": "no"}}))


async def test_a_server_that_loads_yet_is_not_asked_any_further() -> None:
    ask = Server({"*": 503})
    with pytest.raises(Rejected):
        await recognise(ask)
    assert ask.asked == ["/v1/models"]
