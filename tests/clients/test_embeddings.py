"""Clients of embeddings, alone and beneath the indexes that they are for."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun

# It would tell its makers that it runs.
SILENT = {"HAYSTACK_TELEMETRY_ENABLED": "False"}
# It would fetch its table of prices.
LOCAL = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.mark.client("openai", "embeddings: in base64, as by default, and as numbers")
def test_openai_embeds(client_run: ClientRun) -> None:
    found = client_run("embeddings.py")
    assert found["size"] > 16 and found["indexes"] == [0, 1, 2] and found["one"] == 1
    assert found["furthest"] < 1e-6
    assert found["alike"] > found["unlike"]
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 0


@pytest.mark.client(
    "langchain", "`OpenAIEmbeddings(check_embedding_ctx_length=False)` beneath a vector store"
)
def test_langchain_embeds(client_run: ClientRun) -> None:
    found = client_run("embeddings.py")
    assert found["size"] > 16
    assert found["exact"] == "The cat sleeps."


@pytest.mark.client("llamaindex", "`OpenAILikeEmbedding` beneath a `VectorStoreIndex`")
def test_llamaindex_embeds(client_run: ClientRun) -> None:
    found = client_run("embedding.py")
    assert found["size"] > 16
    assert found["found"] == ["The cat sleeps."]


@pytest.mark.client("haystack", "`OpenAIDocumentEmbedder` and `OpenAITextEmbedder` beneath a retriever")
def test_haystack_embeds(client_run: ClientRun) -> None:
    found = client_run("embedders.py", **SILENT)
    assert found["size"] > 16
    assert found["found"] == ["The cat sleeps."]


@pytest.mark.client("litellm", "`embedding`")
def test_litellm_embeds(client_run: ClientRun) -> None:
    found = client_run("embedding.py", **LOCAL)
    assert found["sizes"][0] == found["sizes"][1] > 16 and found["tokens"] > 0
