"""A chat request in vLLM's shape."""

from __future__ import annotations

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from models.engine import EngineRequest
from models.vllm.options import vllm_options


def vllm_request(request: EngineRequest) -> ChatCompletionRequest:
    """Raises `pydantic.ValidationError` for an option that vLLM cannot read."""
    # Without one the engine takes what the prompt leaves, and its meter holds it to the default.
    limit = {request.max_tokens_field: request.max_tokens} if request.max_tokens_field is not None else {}
    return ChatCompletionRequest(
        model=request.model_id,
        messages=[dict(message) for message in request.messages],
        **limit,
        stream=request.stream,
        cache_salt=request.cache_salt,
        request_id=request.request_id,
        **vllm_options(request),
    )
