"""The one place that knows vLLM: runs a chat request on an engine in this process and yields bytes with usage.

It stands on vLLM's own OpenAI layer (templates, structured outputs, tool parsers, logprobs) and reads usage from
the typed outputs beneath it, so no event is parsed to be counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from models.coalesce import coalesce
from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.errors import GrammarTrialsBusy
from models.grammar.tokenizer import trials_of
from models.grammar.trials import GrammarTrials, Kind
from models.vllm_faults import constrained_by, located

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
# The grammars that a caller's schemas become. What else there is, callers cannot ask for.
_TRIED: dict[StructuredOutputOptions, Kind] = {
    StructuredOutputOptions.JSON: "json",
    StructuredOutputOptions.STRUCTURAL_TAG: "structural_tag",
}
ERROR_EVENT = 'data: {"error"'
DONE = "data: [DONE]\n\n"
REPLY_FIELDS = ("id", "object", "created", "model", "choices", "system_fingerprint")


@dataclass(slots=True)
class UsageMeter:
    """Counts one request's tokens from vLLM's outputs, while they are made."""

    engine_client: Any
    external_id: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    counted: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None

    def count(self, output: Any) -> None:
        """Take in a `RequestOutput`: a delta when streaming, else the only and final one."""
        if output.prompt_token_ids is not None:
            self.prompt_tokens = len(output.prompt_token_ids)
        self.cached_tokens = max(self.cached_tokens, output.num_cached_tokens or 0)
        self.counted += sum(len(choice.token_ids) for choice in output.outputs)
        if any(choice.finish_reason == "error" for choice in output.outputs):
            self.failure = GenerationError("the engine gave this request up")

    def peek(self) -> TokenUsage:
        """Usage so far, with what the engine has generated and not yet handed out."""
        processor = self.engine_client.output_processor
        for internal_id in processor.external_req_ids.get(self.external_id, ()):
            state = processor.request_states.get(internal_id)
            if state is None or state.detokenizer is None:
                continue
            self.seen[internal_id] = state.detokenizer.num_output_tokens()
            self.prompt_tokens = state.prompt_len
            self.cached_tokens = max(self.cached_tokens, state.num_cached_tokens or 0)
        return self.usage()

    def usage(self) -> TokenUsage:
        completion = max(self.counted, sum(self.seen.values()))
        if completion == 0:
            return TokenUsage()
        return TokenUsage(self.prompt_tokens, completion, self.cached_tokens)


class _CountingClient:
    """vLLM's engine client, with each request's outputs passing its meter on their way."""

    def __init__(self, client: Any, trials: GrammarTrials) -> None:
        self._client = client
        self._trials = trials
        self.meters: dict[str, UsageMeter] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        meter = self.meters[request_id]
        try:
            # Here vLLM has made one grammar of the request's schema or tools, and the engine has not seen it.
            await self._try_grammar(sampling_params)
            async with aclosing(
                self._client.generate(prompt, sampling_params, request_id, **options)
            ) as outputs:
                async for output in outputs:
                    meter.count(output)
                    yield output
        except Exception as error:
            meter.failure = error
            raise

    async def _try_grammar(self, sampling_params: Any) -> None:
        if sampling_params.structured_outputs is None:
            return
        kind, spec = get_structured_output_key(sampling_params.structured_outputs)
        if kind in _TRIED:
            await self._trials.check(_TRIED[kind], spec)


class VLLMChat:
    """Chat completions of one vLLM engine."""

    def __init__(self, model_id: str, serving_chat: Any, engine_client: Any, *, coalesce_s: float) -> None:
        self._model_id = model_id
        self._client = _CountingClient(engine_client, trials_of(engine_client))
        self._serving = serving_chat
        self._serving.engine_client = self._client
        self._coalesce_s = coalesce_s

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
        meter = UsageMeter(self._client, external_id)
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
        async with aclosing(coalesce(source, interval_s=self._coalesce_s, heartbeat_s=HEARTBEAT_S)) as pieces:
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
            while not (await asyncio.wait((task,), timeout=JSON_PROGRESS_S))[0]:
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
    if request.stream and (options.pop("stream_options", None) or {}).get("continuous_usage_stats"):
        options["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    else:
        options.pop("stream_options", None)
    return ChatCompletionRequest(
        model=request.model_id,
        messages=[dict(message) for message in request.messages],
        **{request.max_tokens_field: request.max_tokens},
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
