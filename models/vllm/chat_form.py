"""A chat completion, made by vLLM's `OpenAIServingChat`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from vllm.entrypoints.generate.base.protocol import StreamOptions
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.vllm import insides
from models.vllm.prompts.options import vllm_fields
from models.vllm.reading.cut_off import told_end
from models.vllm.reading.plain_reply import ReadRequest
from models.vllm.reply_pieces import Meter, completed, openai_events, reasoning_tokens, reply_bytes, streamed


class ChatForm:
    """The `models.vllm.forms.Form` of chat completions."""

    def __init__(self, serving_chat: Any, client: Any, *, coalesce_s: float) -> None:
        self._serving = serving_chat
        insides.replace_engine_client(client, serving_chat)
        self._coalesce_s = coalesce_s
        self._reasons = insides.tells_reasoning(serving_chat)

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        return [insides.engine_id(request.request_id)]

    def pieces(self, request: EngineRequest, meter: Meter) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        asked = ChatCompletionRequest(**vllm_fields(request))
        if request.stream and self._reasons and asked.stream_options is None:
            # Only there vLLM tells how much of a streamed reply was reasoning.
            asked.stream_options = StreamOptions(include_usage=True)
        if not request.stream and insides.has_markup(self._serving, asked):
            asked = ReadRequest(**vllm_fields(request))
        creating = self._serving.create_chat_completion(asked)
        if not request.stream:
            return completed(creating, meter, write=partial(_written, meter))
        read = openai_events(meter, tells_usage="stream_options" in request.options)
        return streamed(creating, meter, read=read, coalesce_s=self._coalesce_s)

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        asked = ChatCompletionRequest(**vllm_fields(request))
        return await insides.prompt_tokens(self._serving, asked, turns=turns)


def _written(meter: Meter, reply: ChatCompletionResponse) -> bytes:
    meter.reasoning_tokens = reasoning_tokens(reply.usage.model_dump())
    for choice in reply.choices:
        choice.finish_reason = told_end(choice, meter.cut_off)
    return reply_bytes(reply)
