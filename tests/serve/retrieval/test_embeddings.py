"""`POST /openai/v1/embeddings`: what it takes and gives, and what it costs however it ends."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse
from sqlalchemy import select

from billing.caller import ProjectLimits
from billing.store.schema import usage_events
from billing.transparency.leaves import record as record_of
from models.embedding_backends import Computed
from models.errors import EngineFailed, EngineRejected, EngineUnavailable
from tests.serve.documented_reply import assert_documented
from tests.serve.money.test_promises import promised
from tests.serve.retrieval.serving import INPUT_NANO_USD, WIDTH, Retrieving
from tests.serve.served import at_rest, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_each_text_gets_its_vector_and_the_reply_says_what_it_cost(here: Retrieving) -> None:
    client = await here.post("embeddings", model="small", input=["two words", "one"]).run()
    body = client.json()
    reply = CreateEmbeddingResponse.model_validate(body, strict=True)
    assert [item.index for item in reply.data] == [0, 1]
    assert [len(item.embedding) for item in reply.data] == [WIDTH, WIDTH]
    assert reply.data[1].embedding[0] == 3.0 and reply.model == "small"
    assert body["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert body["service"]["billing"]["request_cost_usd"] == 3 * INPUT_NANO_USD / 10**9
    assert client.reply_headers["x-service-metering-status"] == "persisted"
    assert client.reply_headers["x-request-id"] == "retrieval"
    assert await here.costs() == [("completed", 3, 3 * INPUT_NANO_USD)]
    await here.served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"model": "small", "input": "a text"}),
        ("rerank", {"model": "order", "query": "q", "documents": ["a", "b"]}),
        ("score", {"model": "order", "text_1": "q", "text_2": ["a", "b"]}),
    ],
)
async def test_each_reply_of_a_project_with_proof_promises_what_the_ledger_has(
    here: Retrieving, path: str, body: dict[str, Any]
) -> None:
    await here.served.accounts.change_project(f"{here.served.workspace}/project", {"proof": True})
    client = await here.post(path, **body).run()
    found = promised(here.served, client.json()["service"]["metering"]["proof"])
    await at_rest()
    rows = await here.served.database.read(lambda c: c.execute(select(usage_events)).mappings().all())
    (record,) = [one for one in map(record_of, rows) if one == found]
    assert json.loads(record)["model_id"] == body["model"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": "a text"}),
        ("embeddings", {"input": ["a", "b"], "encoding_format": "base64"}),
        ("embeddings", {"input": []}),
        ("rerank", {"query": "q", "documents": ["a", "b"], "return_documents": True}),
        ("score", {"text_1": "q", "text_2": ["a", "b"]}),
        ("score", {"text_1": "q", "text_2": ["a"], "model": "omega"}),
    ],
)
async def test_replies_and_errors_have_the_shape_that_is_documented(
    here: Retrieving, path: str, body: dict[str, Any]
) -> None:
    client = await here.post(path, **body).run()
    assert client.status in (200, 400, 404)
    await assert_documented(here.served.api, client)


@pytest.mark.parametrize(
    ("given_input", "texts"),
    [
        ("a text", ("a text",)),
        (["a", "b"], ("a", "b")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["x"] * 2048, ("x",) * 2048),
    ],
    ids=["text", "texts", "tokens", "lists of tokens", "as many as may be"],
)
async def test_input_is_text_or_tokens_one_or_many(
    here: Retrieving, given_input: Any, texts: tuple[Any, ...]
) -> None:
    client = await here.post("embeddings", input=given_input, user="somebody").run()
    assert client.status == 200 and len(client.json()["data"]) == len(texts)
    (job,) = here.fake.jobs
    assert (job.does, job.texts, job.longest, job.dimensions) == ("embed", texts, 32, None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input"),
        ({"input": []}, "must not be empty"),
        ({"input": ""}, "must not be empty"),
        ({"input": ["a", ""]}, "nor hold an empty text"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 1]}, "an array of strings"),
        ({"input": {"text": "a"}}, "an array of strings"),
        ({"input": [True]}, "an array of strings"),
        ({"input": [-1]}, "greater than or equal to 0"),
        ({"input": [2**32]}, "less than"),
        ({"input": ["x"] * 2049}, "at most 2048 items, not 2049"),
        ({"input": "a", "encoding_format": "hex"}, "'float' or 'base64'"),
        ({"input": "a", "dimensions": 0}, "greater than or equal to 1"),
        ({"input": "a", "model": "small", "dimensions": 2**64}, "less than or equal to 65536"),
        ({"input": "a", "model": "far", "dimensions": 4}, "far has vectors of one length"),
    ],
)
async def test_what_cannot_be_used_is_refused_by_its_name_and_costs_nothing(
    here: Retrieving, body: dict[str, Any], words: str
) -> None:
    assert words in await here.refusal("embeddings", **body)


async def test_a_model_of_another_kind_is_not_known_here(here: Retrieving) -> None:
    for name in ("order", "alpha", "lexical", "none"):
        said = await here.refusal("embeddings", status=404, model=name, input="a")
        assert f"'{name}' is not served here; choose one of: small, far" in said


async def test_fewer_dimensions_are_asked_of_a_model_that_allows_it(here: Retrieving) -> None:
    client = await here.post("embeddings", model="small", input="a b", dimensions=3).run()
    assert len(client.json()["data"][0]["embedding"]) == 3


async def test_a_reply_of_many_pieces_is_one_document(here: Retrieving) -> None:
    here.fake.answers = Computed(9, 4096, np.ones((9, 4096), "<f4").tobytes())
    client = await here.post("embeddings", input=["w"] * 9, encoding_format="base64").run()
    assert len([part for part in client.sent if part["type"] == "http.response.body"]) > 3
    items = client.json()["data"]
    assert [item["index"] for item in items] == list(range(9))
    assert all(len(base64.b64decode(item["embedding"])) == 4096 * 4 for item in items)


async def test_what_is_not_proven_is_counted_before_it_is_held(here: Retrieving) -> None:
    client = await here.post("embeddings", model="far", input="three words here").run()
    assert client.status == 200
    assert [job.only_counts for job in here.fake.jobs] == [True, False]
    assert await here.costs() == [("completed", 3, 3 * INPUT_NANO_USD)]


async def test_more_tokens_than_there_is_a_price_for_are_refused_where_they_were_counted(
    here: Retrieving,
) -> None:
    here.fake.answers = Computed(10**9 + 1)
    client = await here.post("embeddings", model="far", input="a").run()
    assert client.status == 400 and "more than 1,000,000,000 tokens" in client.json()["error"]["message"]
    assert await here.costs() == []
    await here.served.assert_nothing_is_left_open()


async def test_near_the_limit_it_is_counted_and_without_money_refused(here: Retrieving) -> None:
    key = await here.served.new_key(spend_limit_nano_usd=2 * INPUT_NANO_USD)
    client = await here.post("embeddings", key=key, input="exactlytwo words").run()
    assert client.status == 200, client.body
    assert [job.only_counts for job in here.fake.jobs] == [True, False]
    client = await here.post("embeddings", key=key, input="w").run()
    assert (client.status, client.json()["error"]["code"]) == (402, "insufficient_quota")


async def test_limits_count_its_tokens(here: Retrieving) -> None:
    key = await here.served.new_key(limits=ProjectLimits(tokens_per_minute=4))
    assert (await here.post("embeddings", key=key, input="a b c").run()).status == 200
    client = await here.post("embeddings", key=key, input="a b").run()
    assert client.status == 429 and client.reply_headers["retry-after"]


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (EngineUnavailable("small: full", retry_after_s=3), 503),
        (EngineFailed("small: it died"), 502),
        (EngineRejected("has 40 tokens", param="input.1"), 400),
        (ZeroDivisionError(), 500),
    ],
)
async def test_a_failure_gives_the_hold_back(here: Retrieving, failure: Exception, status: int) -> None:
    here.fake.failure = failure
    client = here.post("embeddings", input=["a", "b"])
    await client.run()
    assert client.status == status
    if status == 400:
        assert client.json()["error"]["param"] == "input[1]"
    assert await here.costs() == []
    await here.served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    "answer",
    [Computed(1, 3, b"\0" * 11), Computed(1), Computed(1000, 1, b"\0" * 4)],
    ids=["cut off", "nothing", "more tokens than there can be"],
)
async def test_an_answer_that_cannot_be_is_the_models_fault(here: Retrieving, answer: Computed) -> None:
    here.fake.answers = answer
    client = await here.post("embeddings", input="a").run()
    assert client.status == 502 and await here.costs() == []
    await here.served.assert_nothing_is_left_open()


async def test_a_client_that_leaves_ends_the_work_and_pays_nothing(here: Retrieving) -> None:
    import asyncio

    here.fake.gate = asyncio.Event()
    client = here.post("embeddings", input="a")
    running = client.start()
    await eventually(lambda: here.fake.jobs)
    client.gone.set()
    await running
    assert here.fake.cancelled == 1 and client.sent == []
    assert await here.costs() == []
    await here.served.assert_nothing_is_left_open()


async def test_the_models_are_counted_under_their_names(here: Retrieving) -> None:
    def read() -> list[float]:
        value, of = here.served.registry.get_sample_value, {"model": "small"}
        completed = value("pith_retrieval_requests_total", {**of, "outcome": "completed"})
        counts = [value(f"pith_retrieval_{name}_total", of) for name in ("input_tokens", "texts")]
        return [count or 0.0 for count in (*counts, completed)]

    before = read()
    await here.post("embeddings", model="small", input=["a b", "c"]).run()
    assert [after - count for after, count in zip(read(), before, strict=True)] == [3, 2, 1]
