"""`POST rerank` and `POST score`: the shapes of Cohere, Jina and vLLM, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import EngineRejected
from tests.serve.retrieval.serving import INPUT_NANO_USD, MOST_BYTES, Retrieving

DOCUMENTS = ["the sea", "a blue pump", "the blue pump broke"]


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_best_come_first_and_the_query_is_paid_for_with_each(here: Retrieving) -> None:
    client = await here.post("rerank", query="the blue pump", documents=DOCUMENTS, top_n=2).run()
    body = client.json()
    assert [result["index"] for result in body["results"]] == [2, 1]
    assert body["results"][0] == {"index": 2, "relevance_score": 1.0}
    assert body["results"][1]["relevance_score"] == pytest.approx(2 / 3)
    tokens = 3 * 3 + 2 + 3 + 4
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert body["meta"]["billed_units"] == {"input_tokens": tokens} and body["model"] == "order"
    assert body["service"]["billing"]["request_cost_usd"] == tokens * INPUT_NANO_USD / 10**9
    assert await here.costs() == [("completed", tokens, tokens * INPUT_NANO_USD)]
    assert here.fake.payers and here.fake.jobs[0].cut == 32


async def test_the_number_of_results_has_two_names(here: Retrieving) -> None:
    for named in ({"top_k": 2}, {"top_k": 2, "top_n": 2}, {"top_k": 2, "top_n": None}):
        body = (await here.post("rerank", query="the blue pump", documents=DOCUMENTS, **named).run()).json()
        assert [result["index"] for result in body["results"]] == [2, 1]


async def test_documents_may_be_objects_are_cut_and_come_back_if_asked_for(here: Retrieving) -> None:
    documents = [{"text": "the sea", "id": 7}, "pump"]
    body = {"query": "sea", "documents": documents, "return_documents": True, "max_tokens_per_doc": 1}
    client = await here.post("rerank", **body).run()
    assert [result["document"] for result in client.json()["results"]] == [
        {"text": "the sea"},
        {"text": "pump"},
    ]
    assert here.fake.jobs[0].cut == 1 and client.json()["usage"]["total_tokens"] == 4


async def test_equal_documents_keep_their_order(here: Retrieving) -> None:
    client = await here.post("rerank", query="x", documents=["a"] * 40, max_tokens_per_doc=10**6).run()
    assert [result["index"] for result in client.json()["results"]] == list(range(40))
    assert here.fake.jobs[0].cut == 32


@pytest.mark.parametrize(
    ("one", "other", "scores"),
    [
        ("the pump", "a pump", [0.5]),
        ("the pump", ["the pump", "sea"], [1, 0]),
        (["pump"], ["pump", "sea"], [1, 0]),
        (["pump", "sea"], ["pump", "pump"], [1, 0]),
    ],
)
async def test_scores_are_of_one_text_with_all_or_of_pairs(
    here: Retrieving, one: Any, other: Any, scores: list[float]
) -> None:
    for names in (("text_1", "text_2"), ("queries", "documents"), ("queries", "items")):
        client = await here.post("score", **dict(zip(names, (one, other), strict=True))).run()
        body = client.json()
        assert [item["score"] for item in body["data"]] == scores
        assert [item["index"] for item in body["data"]] == list(range(len(scores)))
        assert body["object"] == "list" and body["data"][0]["object"] == "score" and body["created"] > 10**9
    assert len(await here.costs()) == 3


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("rerank", {"documents": ["a"]}, "query"),
        ("rerank", {"query": "", "documents": ["a"]}, "query"),
        ("rerank", {"query": "q", "documents": []}, "documents"),
        ("rerank", {"query": "q", "documents": "a"}, "documents"),
        ("rerank", {"query": "q", "documents": [{"title": "a"}]}, "documents"),
        ("rerank", {"query": "q", "documents": ["a"] * 1001}, "at most 1000 items, not 1001"),
        ("rerank", {"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ("rerank", {"query": "q", "documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ("rerank", {"query": "q", "documents": ["a"], "top_n": 2**64}, "top_n"),
        ("rerank", {"query": "q", "documents": ["a"], "top_k": 0}, "top_k"),
        (
            "rerank",
            {"query": "q", "documents": ["a"], "top_n": 1, "top_k": 2},
            "top_k is another name of top_n",
        ),
        ("rerank", {"query": "q", "documents": ["a"], "max_tokens_per_doc": 2**64}, "max_tokens_per_doc"),
        ("score", {"text_1": "a"}, "text_2"),
        ("score", {"text_1": [], "text_2": ["b"]}, "text_1: must not be empty"),
        ("score", {"text_1": ["a", "b"], "text_2": ["b"]}, "must hold 1 or as many"),
        ("score", {"text_1": ["a"] * 1001, "text_2": ["b"] * 1001}, "at most 1000"),
        ("score", {"text_1": 7, "text_2": "b"}, "text_1"),
    ],
)
async def test_what_cannot_be_used_is_refused_by_its_name_and_costs_nothing(
    here: Retrieving, path: str, body: dict[str, Any], words: str
) -> None:
    assert words in await here.refusal(path, **body)


async def test_more_text_than_the_model_takes_at_once_is_refused(here: Retrieving) -> None:
    said = await here.refusal("rerank", query="q" * 1000, documents=["a" * 600_000, "b" * 600_000])
    assert said == "body.documents: all texts hold 1,201,000 bytes; order takes at most 1,100,000 at once"
    assert "text_2: all texts" in await here.refusal("score", text_1="q", text_2="b" * MOST_BYTES)
    assert "input: all texts" in await here.refusal("embeddings", input=["a" * 600_000] * 2)
    # Of a model of its own process too: it would count them before anything is held.
    said = await here.refusal("embeddings", model="far", input=["a" * 600_000] * 2)
    assert "far takes at most 1,150,000 at once" in said
    assert (await here.post("embeddings", model="far", input=["a" * 570_000] * 2).run()).status == 200


async def test_of_a_long_query_no_more_is_held_than_can_be_read(here: Retrieving) -> None:
    query, documents = "a" * (MOST_BYTES - 1000), ["b"] * 1000
    # Its words are few: what the model reads is no more than its context, whatever its bytes.
    client = await here.post("rerank", query=query, documents=documents).run()
    assert client.status == 200, client.body
    assert await here.costs() == [("completed", 2000, 2000 * INPUT_NANO_USD)]


async def test_no_request_can_be_more_tokens_than_there_is_a_price_for(here: Retrieving) -> None:
    query, documents = "a" * (MOST_BYTES - 1000), ["b"] * 1000
    said = await here.refusal("rerank", model="wide", query=query, documents=documents)
    assert said.startswith("body.query: with all texts it may be more than 1,000,000,000 tokens")
    assert "body.text_1" in await here.refusal("score", model="wide", text_1=query, text_2=documents)


async def test_a_refusal_of_the_model_is_told_in_the_routes_own_words(here: Retrieving) -> None:
    here.fake.failure = EngineRejected("has 40 tokens", param="documents.1", is_too_long=True)
    client = await here.post("score", text_1="a", text_2=["b", "c"]).run()
    error = client.json()["error"]
    assert (client.status, error["param"], error["code"]) == (400, "text_2[1]", "context_length_exceeded")
    assert await here.costs() == []


async def test_an_embedding_model_orders_nothing(here: Retrieving) -> None:
    said = await here.refusal("rerank", status=404, model="small", query="q", documents=["a"])
    assert "'small' is not served here; choose one of: order, wide" in said


async def test_coheres_second_version_is_the_same(here: Retrieving) -> None:
    client = here.post("rerank", query="sea", documents=DOCUMENTS)
    client.path = "/openai/v2/rerank"
    assert (await client.run()).json()["results"][0]["index"] == 0
