"""The one place that knows vLLM: runs a chat request on an engine in this process and yields bytes with usage.

It stands on vLLM's own OpenAI layer (templates, structured outputs, tool parsers, logprobs) and reads usage from
the typed outputs beneath it, so no event is parsed to be counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from pydantic import ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import GrammarTrialsBusy
from models.grammar.tokenizer import trials_of
from models.vllm.coalesce import coalesce
from models.vllm.faults import constrained_by, located
from models.vllm.meter import CountingClient, UsageMeter
from models.vllm.prompt import PromptMaking, prompt_making

HEARTBEAT_S = 0.5
JSON_PROGRESS_S = 0.2
RESTART_S = 10
# vLLM's own fields, which are null unless its own options ask for them; inside a text their quotes are escaped.
NULL_FIELDS = (',"token_ids":null', ',"prompt_token_ids":null', ',"prompt_text":null')
WARM_UP = ({"role": "user", "content": "Hello."},)
WARM_UP_OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0, "n": 2, "response_format": {"type": "json_object"}},
)
ERROR_EVENT = 'data: {"error"'
DONE = "data: [DONE]\n\n"
REPLY_FIELDS = ("id", "object", "created", "model", "choices", "system_fingerprint")


class VLLMChat:
    """Chat completions of one vLLM engine."""

    def __init__(self, model_id: str, serving_chat: Any, engine_client: Any, *, coalesce_s: float) -> None:
        self._model_id = model_id
        self._client = CountingClient(engine_client, trials_of(engine_client))
        self._serving = serving_chat
        self._serving.engine_client = self._client
        self._coalesce_s = coalesce_s

    @property
    def prompt_making(self) -> PromptMaking | None:
        """What this engine makes a prompt with."""
        return prompt_making(self._serving)

    @property
    def dead(self) -> bool:
        """Whether the engine's own process has died: it never comes back by itself."""
        return bool(self._client.errored)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield chunks; the last item is a chunk with `finished`, or a fault."""
        if self.dead:
            yield EngineFault(
                "unavailable", "the engine has died and is being replaced", retry_after_s=RESTART_S
            )
            return
        external_id = f"chatcmpl-{request.request_id}"
        meter = UsageMeter(self._client, external_id, request.max_tokens)
        self._client.meters[external_id] = meter
        try:
            run = self._stream if request.stream else self._complete
            async with aclosing(run(vllm_request(request), meter)) as items:
                async for item in items:
                    yield located(item, request) if isinstance(item, EngineFault) else item
        except (VLLMClientError, ValidationError, ValueError) as error:
            yield located(
                EngineFault("rejected", _message(error), getattr(error, "parameter", None)), request
            )
        except (GracefulHTTPError, GrammarTrialsBusy) as error:
            yield EngineFault("unavailable", str(error))
        except (EngineDeadError, EngineGenerateError, GenerationError):
            yield self._broken(request, meter)
        finally:
            self._client.meters.pop(external_id, None)

    def _broken(self, request: EngineRequest, meter: UsageMeter) -> EngineFault:
        """What vLLM's one exception means that stands for its own death and for a grammar that it chokes on."""
        field = constrained_by(request)
        if not self.dead and meter.usage().completion_tokens == 0 and field is not None:
            return EngineFault("rejected", "the engine cannot hold a reply to this schema", field)
        return EngineFault("failed", "the engine failed while it worked on this request")

    async def count_tokens(self, request: EngineRequest) -> int | EngineFault:
        """The prompt's tokens, rendered and tokenized as for a generation."""
        try:
            # `skip_mm_cache`: media that were only counted must not stand in the cache as sent to the engine.
            rendered = await self._serving.online_renderer.render_chat(
                vllm_request(request), skip_mm_cache=True
            )
        except (VLLMClientError, ValidationError, ValueError) as error:
            return located(
                EngineFault("rejected", _message(error), getattr(error, "parameter", None)), request
            )
        if isinstance(rendered, ErrorResponse):
            return located(fault_of(rendered), request)
        return sum(self._serving._extract_prompt_len(prompt) for prompt in rendered[1])

    async def warm_up(self) -> None:
        """Answer once greedily and once sampled under a grammar, so that no caller waits for what loads lazily."""
        for number, options in enumerate(WARM_UP_OPTIONS):
            request = EngineRequest(
                f"warm-up-{number}", self._model_id, WARM_UP, 4, False, "warm-up", options
            )
            async for _ in self.generate(request):
                pass

    async def _stream(
        self, request: ChatCompletionRequest, meter: UsageMeter
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        reply = await self._serving.create_chat_completion(request)
        if isinstance(reply, ErrorResponse):
            yield fault_of(reply)
            return
        source = _events(reply, meter)
        pieces = coalesce(
            source, interval_s=self._coalesce_s, heartbeat_s=HEARTBEAT_S, sign_of_life=meter.handed_over
        )
        async with aclosing(pieces):
            async for piece in pieces:
                yield EngineChunk(piece, meter.usage(), finished=False)
        if meter.failure is not None:
            raise meter.failure
        yield EngineChunk(b"", meter.usage(), finished=True)

    async def _complete(
        self, request: ChatCompletionRequest, meter: UsageMeter
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        task = asyncio.create_task(self._serving.create_chat_completion(request))
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


def vllm_request(request: EngineRequest) -> ChatCompletionRequest:
    """The request in vLLM's shape. Raises `pydantic.ValidationError` for an option that vLLM cannot read."""
    options = dict(request.options)
    # Without one the engine takes what the prompt leaves, and its meter holds it to the default.
    limit = {request.max_tokens_field: request.max_tokens} if request.max_tokens_field is not None else {}
    if request.stream and (options.pop("stream_options", None) or {}).get("continuous_usage_stats"):
        options["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    else:
        options.pop("stream_options", None)
    return ChatCompletionRequest(
        model=request.model_id,
        messages=[dict(message) for message in request.messages],
        **limit,
        stream=request.stream,
        cache_salt=request.cache_salt,
        request_id=request.request_id,
        **options,
    )


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


def fault_of(reply: ErrorResponse) -> EngineFault:
    """vLLM's error object as a fault, by the status that vLLM gave it."""
    error = reply.error
    if error.code < 500:
        return EngineFault("rejected", error.message, param=error.param)
    if error.code == 503:
        return EngineFault("unavailable", "the engine is too busy to take this request")
    return EngineFault("failed", "the engine could not complete this request")


def _message(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    return str(error)
