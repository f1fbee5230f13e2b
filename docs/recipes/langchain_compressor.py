"""A LangChain document compressor that asks a running pith. Copy it; it needs langchain-core and httpx.

All documents share one budget: those that say nothing about the query go, of the others the part that does stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import SecretStr

BETWEEN = "\n\n"


class PithCompressor(BaseDocumentCompressor):
    """Give `target_ratio` (the most of the tokens to keep), or `keep` (the probability that what answers the query
    survives), or neither for the model's default. Raises `RuntimeError` with pith's reason."""

    api_key: SecretStr
    url: str = "http://127.0.0.1:8000"
    target_ratio: float | None = None
    keep: float | None = None
    model: str | None = None
    timeout_s: float = 60

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        texts = [document.page_content for document in documents]
        if not "".join(texts).strip():
            return list(documents)
        answer = self._ask({"query": query, "input": BETWEEN.join(texts), "include": ["spans"]})
        spans = [(span["start"], span["end"]) for span in answer["kept"]]
        found, begin = [], 0
        for document in documents:
            end = begin + len(document.page_content)
            text = document.page_content
            parts = [text[max(a - begin, 0) : b - begin] for a, b in spans if a < end and b > begin]
            if shorter := "".join(parts).strip():
                metadata = {**document.metadata, "compression_id": answer["id"]}
                found.append(Document(id=document.id, page_content=shorter, metadata=metadata))
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
