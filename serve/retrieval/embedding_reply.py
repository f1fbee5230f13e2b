"""The body of an `embeddings` reply: OpenAI's, with pith's `service` beside it."""

from collections.abc import Iterator
from typing import Any, Literal

import orjson

from models.retrieval import Computed
from serve.retrieval.charged_reply import Write
from serve.retrieval.vectors_json import embedding_items


def embeddings_writer(model_id: str, encoding: Literal["float", "base64"]) -> Write:
    def write(computed: Computed, charged: dict[str, Any], request_id: str) -> Iterator[bytes]:
        del request_id
        rest = {"model": model_id, "usage": input_usage(charged), "service": charged["service"]}
        yield b'{"object":"list","data":['
        yield from embedding_items(computed, encoding)
        yield b"]," + orjson.dumps(rest)[1:]

    return write


def input_usage(charged: dict[str, Any]) -> dict[str, int]:
    """OpenAI's `usage` of what generates nothing."""
    usage = charged["usage"]
    return {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["total_tokens"]}
