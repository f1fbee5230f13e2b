"""Chat completions and completions of bare prompts, by vLLM's `OpenAIServingChat` and `OpenAIServingCompletion`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

import orjson
from vllm.entrypoints.generate.base.protocol import StreamOptions
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.vllm import insides
from models.vllm.counting_client import PromptMeters
from models.vllm.prompts import vllm_fields, vllm_options
from models.vllm.reply_pieces import completed, openai_events, reasoning_tokens, streamed
from models.vllm.reply_reading import ReadRequest, told_end

REPLY_FIELDS = {"id", "object", "created", "model", "choices", "system_fingerprint"}
CHOICE_FIELDS = ("index", "text", "logprobs", "finish_reason", "stop_reason")


class ChatForm:
    """The `models.vllm.engine.Form` of chat completions."""

    def __init__(self, serving_chat: Any, client: Any) -> None:
        self._serving = serving_chat
        insides.replace_engine_client(client, serving_chat)
        self._reasons = insides.tells_reasoning(serving_chat)

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        return [insides.engine_id(request.request_id)]

    def pieces(
        self, request: EngineRequest, meter: PromptMeters
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        asked = ChatCompletionRequest(**vllm_fields(request))
        if self._reasons or insides.has_markup(self._serving, asked):
            # A parser cannot begin in the middle of what it reads.
            meter.survives = False
        if request.stream and self._reasons and asked.stream_options is None:
            # Only there vLLM tells how much of a streamed reply was reasoning.
            asked.stream_options = StreamOptions(include_usage=True)
        if not request.stream and insides.has_markup(self._serving, asked):
            asked = ReadRequest(**vllm_fields(request))
        creating = self._serving.create_chat_completion(asked)
        if not request.stream:
            return completed(creating, meter, write=partial(_written, meter))
        tells_usage = "stream_options" in request.options
        read = openai_events(meter, tells_usage=tells_usage, goes_on=bool(request.said))
        return streamed(creating, meter, read=read)

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        asked = ChatCompletionRequest(**vllm_fields(request))
        return await insides.prompt_tokens(self._serving, asked, turns=turns)


def _written(meter: PromptMeters, reply: ChatCompletionResponse) -> bytes:
    meter.reasoning_tokens = reasoning_tokens(reply.usage.model_dump())
    for choice in reply.choices:
        choice.finish_reason = told_end(choice, meter.cut_off)
    return reply_bytes(reply)


def reply_bytes(reply: ChatCompletionResponse) -> bytes:
    """OpenAI's chat completion object as JSON, without vLLM's own fields and without usage."""
    fields = reply.model_dump(include=REPLY_FIELDS, exclude_none=True)
    for choice in fields["choices"]:
        choice.setdefault("logprobs", None)
        choice.pop("routed_experts", None)
        message = choice["message"]
        message.setdefault("content", None)
        message.setdefault("refusal", None)
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
    return orjson.dumps(fields)


class CompletionForm:
    """The `models.vllm.engine.Form` of completions."""

    def __init__(self, serving_chat: Any, client: Any) -> None:
        self._serving = insides.serving_completion(serving_chat, client)

    def engine_ids(self, request: EngineRequest) -> Sequence[str]:
        return [insides.completion_engine_id(request.request_id, at) for at in range(len(request.prompts))]

    def pieces(
        self, request: EngineRequest, meter: PromptMeters
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        asked = CompletionRequest(**completion_fields(request))
        creating = self._serving.create_completion(asked)
        if not request.stream:
            return completed(creating, meter, write=completion_bytes)
        read = openai_events(meter, tells_usage="stream_options" in request.options)
        return streamed(creating, meter, read=read)

    async def count_tokens(
        self, request: EngineRequest, *, turns: asyncio.Lock | None
    ) -> int | ErrorResponse:
        asked = CompletionRequest(**completion_fields(request))
        return await insides.prompt_tokens(self._serving, asked, turns=turns)


def completion_fields(request: EngineRequest) -> dict[str, Any]:
    """The fields of vLLM's `CompletionRequest`."""
    prompts = [prompt if isinstance(prompt, str) else list(prompt) for prompt in request.prompts]
    return {
        "model": request.model_id,
        "prompt": prompts,
        "max_tokens": request.max_tokens,
        "stream": request.stream,
        "cache_salt": request.cache_salt,
        "request_id": request.request_id,
        **vllm_options(request),
        **request.form_options,
    }


def completion_bytes(reply: CompletionResponse) -> bytes:
    """OpenAI's completion object as JSON, without vLLM's own fields and without usage."""
    fields = reply.model_dump(include=REPLY_FIELDS, exclude_none=True)
    fields["choices"] = [{name: choice.get(name) for name in CHOICE_FIELDS} for choice in fields["choices"]]
    return orjson.dumps(fields)
