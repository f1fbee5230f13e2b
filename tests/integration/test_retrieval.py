"""Embeddings on the real server, through the client that most programs use."""

from __future__ import annotations

import math
from collections.abc import Iterator

import openai
import pytest
from openai.types import CreateEmbeddingResponse

from tests.integration.running import Server

TEXTS = ["The cat sat on the mat.", "A kitten lies on a rug.", "Shares fell sharply in New York today."]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0) as found:
        yield found


def cosine(left: list[float], right: list[float]) -> float:
    return sum(map(lambda a, b: a * b, left, right))


def test_texts_of_one_meaning_are_near_and_the_reply_says_what_it_cost(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="pith-embed", input=TEXTS)
    vectors = [item.embedding for item in reply.data]
    assert [len(vector) for vector in vectors] == [128] * 3
    assert all(math.isclose(cosine(vector, vector), 1, abs_tol=1e-5) for vector in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2]) + 0.2
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 0
    assert reply.model_extra is not None and reply.model_extra["service"]["metering"]["persisted"]


def test_both_encodings_and_fewer_dimensions_give_the_same_vectors(client: openai.OpenAI) -> None:
    whole = client.embeddings.create(model="pith-embed", input=TEXTS[0]).data[0].embedding
    raw = client.embeddings.with_raw_response.create(
        model="pith-embed", input=TEXTS[0], encoding_format="float", dimensions=32
    )
    reply = CreateEmbeddingResponse.model_validate_json(raw.text, strict=True)
    length = math.sqrt(sum(number * number for number in whole[:32]))
    assert reply.data[0].embedding == pytest.approx([number / length for number in whole[:32]], abs=1e-6)


def test_tokens_are_those_of_the_models_own_tokenizer(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="pith-embed", input=[[300, 301, 302], [303]])
    assert len(reply.data) == 2 and reply.usage.prompt_tokens == 4
    with pytest.raises(openai.BadRequestError, match="99999 is not a token of pith-mini"):
        client.embeddings.create(model="pith-embed", input=[99999])


def test_a_text_beyond_the_context_is_refused_by_its_place(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="pith-embed", input=["short", "word " * 9000])
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "input[1]"


def test_the_list_says_what_each_model_is_for(client: openai.OpenAI) -> None:
    kinds = {model.id: (model.model_extra or {})["kind"] for model in client.models.list()}
    assert kinds["pith-embed"] == "embedding" and kinds["pith-rerank"] == "rerank"
    assert kinds["pith-mini"] == "chat"


def test_the_passage_that_answers_comes_first(server: Server) -> None:
    documents = ["Bananas are yellow.", "The capital of France is Paris.", "France has many rivers."]
    with server.client() as http:
        body = {"query": "What is the capital of France?", "documents": documents, "return_documents": True}
        for path in ("/openai/v1/rerank", "/openai/v2/rerank"):
            reply = http.post(path, json={"model": "pith-rerank", **body}).raise_for_status().json()
            first, *others = reply["results"]
            assert first["index"] == 1 and first["document"]["text"] == documents[1]
            assert first["relevance_score"] > max(other["relevance_score"] for other in others)
            assert reply["service"]["metering"]["status"] == "persisted"
        scored = http.post("/openai/v1/score", json={"text_1": body["query"], "text_2": documents})
        scores = [item["score"] for item in scored.raise_for_status().json()["data"]]
        assert scores.index(max(scores)) == 1
