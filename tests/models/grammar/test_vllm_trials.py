"""How a trial's end reaches the caller of a real `VLLMEngine`, whose engine never sees the grammar."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine import EngineFault, EngineRequest
from models.errors import GrammarTooCostly, GrammarTrialsBusy
from models.grammar.trials import TrialTerms
from serve.fairness.replica_turns import FairTrials

pytestmark = pytest.mark.integration

SCHEMA = {"type": "string", "pattern": "a*"}
OPTIONS = {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}


class FakeEngineClient:
    """An engine that remembers what reached it."""

    errored = False
    vllm_config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(disable_any_whitespace=False),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
    )

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncGenerator[Any, None]:
        self.asked.append(params)
        yield SimpleNamespace(prompt_token_ids=[1], num_cached_tokens=0, outputs=[])


class FakeRenderer:
    """Nothing is rendered."""

    render_chat = render_completion = None
    use_harmony = False
    model_config = SimpleNamespace(tokenizer="no/such", tokenizer_revision=None)
    # As vLLM has it: the renderer within has the threads.
    renderer = SimpleNamespace(_executor=ThreadPoolExecutor())


class FakeServing:
    """vLLM's OpenAI layer, as far as it passes on what its engine client raises."""

    engine_client: Any
    _include_reasoning_tokens_details = False
    parser_cls = None

    def __init__(self) -> None:
        self.online_renderer = FakeRenderer()

    async def create_chat_completion(self, request: Any) -> Any:
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams

        params = SamplingParams(structured_outputs=StructuredOutputsParams(json=SCHEMA))
        outputs = self.engine_client.generate("hi", params, f"chatcmpl-{request.request_id}")
        if request.stream:
            return self._events(outputs)
        async for _ in outputs:
            pass
        raise AssertionError("the engine was asked")

    async def _events(self, outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[str, None]:
        try:
            async for _ in outputs:
                yield 'data: {"choices":[{}]}\n\n'
        except Exception as error:
            yield f'data: {{"error": "{error}"}}\n\n'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "param"),
    [
        (GrammarTooCostly("too dear"), "rejected", "response_format"),
        (GrammarTrialsBusy("too dear"), "unavailable", None),
    ],
)
async def test_a_grammar_that_fails_its_trial_is_refused_and_the_engine_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, stream: bool, error: Exception, kind: str, param: str | None
) -> None:
    from models.grammar.trials import GrammarTrials
    from models.vllm.engine import VLLMEngine
    from models.vllm.openai_forms import ChatForm

    tried: list[tuple[str, str]] = []

    async def check(self: GrammarTrials, kind: str, spec: str, asking: EngineRequest) -> None:
        assert asking is request
        tried.append((kind, spec))
        raise error

    monkeypatch.setattr(GrammarTrials, "check", check)
    client = FakeEngineClient()

    def chat_alone(serving: Any, client: Any) -> Any:
        return {"chat": ChatForm(serving, client)}

    # The other forms take along more of vLLM's layer than this fake has.
    monkeypatch.setattr("models.vllm.engine.forms_of", chat_alone)
    chat = VLLMEngine(
        "m", FakeServing(), client, coalesce_s=0.0, trial_turns=FairTrials(), trial_terms=TrialTerms()
    )
    request = EngineRequest("1", "m", ({"role": "user", "content": "hi"},), 5, stream, "ws", OPTIONS)
    items = [item async for item in chat.generate(request)]
    last = items[-1]
    assert isinstance(last, EngineFault)
    assert (last.kind, last.message, last.param) == (kind, "too dear", param)
    assert tried == [("json", '{"type": "string", "pattern": "a*"}')]
    assert client.asked == []
