"""What vLLM's OpenAI layer calls in the engine's place: each request is tried, bounded and counted on its way."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from models.engine import EngineRequest
from models.grammar.trials import GrammarTrials
from models.vllm.grammars import TRIED
from models.vllm.insides import grammar_key
from models.vllm.usage import UsageMeter


class CountingClient:
    """vLLM's engine client, with each request's grammar tried first and its outputs counted on their way."""

    def __init__(self, client: Any, trials: GrammarTrials) -> None:
        self._client = client
        self._trials = trials
        self.meters: dict[str, UsageMeter] = {}
        # What each is part of.
        self.requests: dict[str, EngineRequest] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        meter = self.meters[request_id]
        try:
            async with (
                meter.turns,
                aclosing(self._outputs(meter, prompt, sampling_params, request_id, options)) as outputs,
            ):
                async for output in outputs:
                    yield output
        except Exception as error:
            meter.failure = error
            raise

    async def _outputs(
        self,
        meter: UsageMeter,
        prompt: Any,
        sampling_params: Any,
        request_id: str,
        options: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        request = self.requests[request_id]
        # Here vLLM has made one grammar of the request's schema or tools, and the engine has not seen it.
        await self._try_grammar(sampling_params, request)
        meter.hand_over(prompt, sampling_params)
        if request.trace_headers:
            options["trace_headers"] = request.trace_headers
        generating = self._client.generate(prompt, sampling_params, request_id, **options)
        async with aclosing(generating) as outputs:
            async for output in outputs:
                meter.count(output)
                yield output

    async def close(self) -> None:
        """End what tries grammars, and the engine."""
        await self._trials.close()
        self._client.shutdown()

    async def _try_grammar(self, sampling_params: Any, request: EngineRequest) -> None:
        if sampling_params.structured_outputs is None:
            return
        kind, spec = grammar_key(sampling_params.structured_outputs)
        if kind in TRIED:
            await self._trials.check(TRIED[kind], spec, request)
