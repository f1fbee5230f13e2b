"""`sizes` of a compression: what is kept at other ratios in one answer, at the price of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compression.pipeline import compression_model as sizes_of_texts
from compression.pipeline.compression_model import LONGEST_SIZED_BYTES
from tests.serve.compressing import (
    CONTEXT,
    LONGEST_INPUT_BYTES,
    QUERY,
    SENTENCES,
    Compressing,
)

RATIOS = [0.2, 0.5, 0.8, 1.0]
SIZES = [{"target_ratio": ratio} for ratio in RATIOS]
ITEM = {"query": QUERY, "input": CONTEXT}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def written(size: dict[str, Any]) -> str:
    return "".join(CONTEXT[start:end] for start, end in size["kept"])


@pytest.mark.parametrize("path", ["/v1/compress", "/v1/demo/compress"])
async def test_one_answer_tells_of_every_size_what_its_own_would(served: Compressing, path: str) -> None:
    body = (await served.post(path, {**ITEM, "sizes": SIZES}).run()).json()
    assert [size["receipt"]["target_ratio"] for size in body["sizes"]] == RATIOS
    for ratio, size in zip(RATIOS, body["sizes"], strict=True):
        alone = (await served.post(path, {**ITEM, "compression": {"target_ratio": ratio}}).run()).json()
        assert written(size) == alone["output"]
        assert {**size["receipt"], "latency_ms": 0} == {**alone["receipt"], "latency_ms": 0}
    assert written(body["sizes"][-1]) == CONTEXT


async def test_it_is_charged_as_one_compression(served: Compressing) -> None:
    plain = await served.compress().run()
    sized = await served.compress(sizes=SIZES).run()
    assert plain.status == sized.status == 200
    first, second = await served.events()
    assert [first[name] for name in ("cost_nano_usd", "prompt_tokens")] == [
        second[name] for name in ("cost_nano_usd", "prompt_tokens")
    ]
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ([{"target_ratio": 0.1}] * 65, "sizes"),
        ([{}], "sizes"),
        ([{"target_ratio": 0}], "target_ratio"),
        ([{"target_ratio": 0.5, "keep": 0.5}], "keep"),
        ("all", "sizes"),
    ],
)
async def test_wrong_sizes_are_refused_by_name(served: Compressing, sizes: Any, field: str) -> None:
    for path in ("/v1/compress", "/v1/demo/compress"):
        client = await served.post(path, {**ITEM, "sizes": sizes}).run()
        assert client.status == 422 and any(field in str(issue["loc"]) for issue in client.json()["detail"])
    assert await served.events() == []


async def test_a_text_in_too_many_units_for_its_sizes_is_refused_by_name(
    served: Compressing, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = len(SENTENCES)
    monkeypatch.setattr(sizes_of_texts, "MOST_SIZED_UNITS", units * len(SIZES) - 1)
    for path in ("/v1/compress", "/v1/demo/compress"):
        client = await served.post(path, {**ITEM, "sizes": SIZES}).run()
        assert client.status == 422 and client.json()["error"]["param"] == "sizes"
        assert f"{units} units, so at most {len(SIZES) - 1} sizes" in client.json()["error"]["message"]
        assert (await served.post(path, {**ITEM, "sizes": SIZES[1:]}).run()).status == 200
    assert len(await served.events()) == 1
    await served.assert_nothing_is_left_open()


async def test_what_cannot_be_told_of_is_refused_before_it_is_begun(served: Compressing) -> None:
    messages = [{"role": "user", "content": CONTEXT}]
    client = await served.post("/v1/compress", {"query": QUERY, "messages": messages, "sizes": SIZES}).run()
    assert client.status == 422 and "sizes" in client.json()["error"]["message"]
    for name, one in served.served.items():
        served.served[name] = replace(one, longest_input_bytes=10**6)
    long = {**ITEM, "input": "x" * (LONGEST_SIZED_BYTES + 1), "sizes": SIZES}
    client = await served.post("/v1/compress", long).run()
    assert client.status == 422 and "200,000" in client.json()["error"]["message"]
    for name, one in served.served.items():
        served.served[name] = replace(one, longest_input_bytes=LONGEST_INPUT_BYTES, offers_sizes=False)
    client = await served.compress(sizes=SIZES).run()
    assert client.status == 422 and "one at a time" in client.json()["error"]["message"]
    for name, one in served.served.items():
        served.served[name] = replace(one, offers_sizes=True)
    assert served.model.started == []
