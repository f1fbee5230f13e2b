"""A LlamaIndex node postprocessor that asks a running pith. Copy it; it needs llama-index-core and httpx.

All nodes share one budget: those that say nothing about the query go, of the others the part that does stays.
"""

from __future__ import annotations

from typing import Any

import httpx
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import SecretStr

BETWEEN = "\n\n"


class PithPostprocessor(BaseNodePostprocessor):
    """Give `target_ratio` (the most of the tokens to keep), or `keep` (the probability that what answers the query
    survives), or neither for the model's default. Raises `RuntimeError` with pith's reason."""

    api_key: SecretStr
    url: str = "http://127.0.0.1:8000"
    target_ratio: float | None = None
    keep: float | None = None
    model: str | None = None
    timeout_s: float = 60

    @classmethod
    def class_name(cls) -> str:
        return "PithPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("PithPostprocessor needs the query: give query_str or query_bundle")
        texts = [each.node.get_content(metadata_mode=MetadataMode.NONE) for each in nodes]
        if not "".join(texts).strip():
            return nodes
        body = {"query": query_bundle.query_str, "input": BETWEEN.join(texts), "include": ["spans"]}
        spans = [(span["start"], span["end"]) for span in self._ask(body)["kept"]]
        found, begin = [], 0
        for each, text in zip(nodes, texts, strict=True):
            end = begin + len(text)
            parts = [text[max(a - begin, 0) : b - begin] for a, b in spans if a < end and b > begin]
            if not text.strip():  # An image, for instance: nothing was asked about it.
                found.append(each)
            elif shorter := "".join(parts).strip():
                node = each.node.model_copy()
                node.set_content(shorter)
                found.append(NodeWithScore(node=node, score=each.score))
            begin = end + len(BETWEEN)
        return found

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        sizes = {"target_ratio": self.target_ratio, "keep": self.keep}
        options = {name: value for name, value in sizes.items() if value is not None}
        sent = {**body, "model": self.model, "compression": options}
        key = {"Authorization": f"Bearer {self.api_key.get_secret_value()}"}
        try:
            reply = httpx.post(f"{self.url}/v1/compress", json=sent, headers=key, timeout=self.timeout_s)
        except httpx.HTTPError as error:
            raise RuntimeError(f"pith at {self.url} cannot be reached: {error}") from error
        if reply.status_code != 200:
            raise RuntimeError(f"pith refused ({reply.status_code}): {reply.text[:500]}")
        answer: dict[str, Any] = reply.json()
        return answer
