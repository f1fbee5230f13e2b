"""Turns vLLM's outputs into the pieces of a reply, each with the usage so far, streamed or as one JSON object."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError

from models.engine import EngineChunk, EngineFault
from models.vllm.coalesce import coalesce
from models.vllm.faults import fault_of
from models.vllm.usage import UsageMeter

HEARTBEAT_S = 0.5
JSON_PROGRESS_S = 0.2
# vLLM's own fields, which are null unless its own options ask for them; inside a text their quotes are escaped.
NULL_FIELDS = (',"token_ids":null', ',"prompt_token_ids":null', ',"prompt_text":null')
ERROR_EVENT = 'data: {"error"'
DONE = "data: [DONE]\n\n"
REPLY_FIELDS = ("id", "object", "created", "model", "choices", "system_fingerprint")


async def streamed(
    serving_chat: Any, request: ChatCompletionRequest, meter: UsageMeter, *, coalesce_s: float
) -> AsyncGenerator[EngineChunk | EngineFault, None]:
    """The pieces of a reply in server-sent events, the first at once, later ones every `coalesce_s`."""
    reply = await serving_chat.create_chat_completion(request)
    if isinstance(reply, ErrorResponse):
        yield fault_of(reply)
        return
    source = _events(reply, meter)
    pieces = coalesce(source, interval_s=coalesce_s, heartbeat_s=HEARTBEAT_S, sign_of_life=meter.handed_over)
    async with aclosing(pieces):
        async for piece in pieces:
            yield EngineChunk(piece, meter.usage(), finished=False)
    if meter.failure is not None:
        raise meter.failure
    yield EngineChunk(b"", meter.usage(), finished=True)


async def completed(
    serving_chat: Any, request: ChatCompletionRequest, meter: UsageMeter
) -> AsyncGenerator[EngineChunk | EngineFault, None]:
    """Usage while the reply is made, and then the reply in one piece."""
    task = asyncio.create_task(serving_chat.create_chat_completion(request))
    try:
        while True:
            signs = (task,) if meter.handed_over.done() else (task, meter.handed_over)
            await asyncio.wait(signs, timeout=JSON_PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                break
            yield EngineChunk(b"", meter.peek(), finished=False)
        reply = task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if meter.failure is not None:
        raise meter.failure
    if isinstance(reply, ErrorResponse):
        yield fault_of(reply)
        return
    yield EngineChunk(reply_bytes(reply), meter.usage(), finished=True)


async def _events(reply: AsyncGenerator[str, None], meter: UsageMeter) -> AsyncGenerator[bytes, None]:
    async with aclosing(reply) as events:
        async for event in events:
            # vLLM turns an exception into an error event; ours is written by the service, after settling.
            if event.startswith(ERROR_EVENT):
                meter.failure = meter.failure or GenerationError(event)
            if event == DONE or meter.failure is not None:
                continue
            # The usage event of `include_usage`; the service sends its own, with billing.
            if '"choices":[]' in event[:400]:
                continue
            for field in NULL_FIELDS:
                event = event.replace(field, "")
            yield event.encode()


def reply_bytes(reply: ChatCompletionResponse) -> bytes:
    """OpenAI's chat completion object as JSON, without vLLM's own fields and without usage."""
    fields = reply.model_dump(include=set(REPLY_FIELDS), exclude_none=True)
    for choice in fields["choices"]:
        choice.setdefault("logprobs", None)
        choice.pop("routed_experts", None)
        message = choice["message"]
        message.setdefault("content", None)
        message.setdefault("refusal", None)
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
    return orjson.dumps(fields)
