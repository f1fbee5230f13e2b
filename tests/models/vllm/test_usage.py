"""The meter on vLLM's own output processor: what is counted of a reply while it is made, choice by choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from models.embedded.install import ensure_checkpoints
from models.engine import EngineRequest

PROMPT = [1, 2, 3]


class Choices:
    """A request for several choices in vLLM's own bookkeeping, fed token by token as its engine core would."""

    def __init__(self, n: int, *, tokenizer: Any = None, **params: Any) -> None:
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.engine.parallel_sampling import ParentRequest

        self.processor = OutputProcessor(tokenizer, log_stats=False)
        given = {"output_kind": RequestOutputKind.FINAL_ONLY, "detokenize": False, **params}
        sampling = SamplingParams(n=n, max_tokens=100, **given)
        request = EngineCoreRequest(
            request_id="inner",
            prompt_token_ids=PROMPT,
            mm_features=None,
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id="outer",
        )
        parent = ParentRequest(request) if n > 1 else None
        self.ids = []
        for index in range(n):
            if parent is not None:
                request.request_id, request.sampling_params = parent.get_child_info(index)
            self.processor.add_request(request, None, parent, index)
            self.ids.append(request.request_id)

    def make(self, index: int, tokens: int, *, ends: bool = False, cached: int = 0) -> list[Any]:
        """The outputs that vLLM hands out when the engine has made these tokens of a choice, and had so many of its
        prompt in the prefix cache."""
        from vllm.v1.engine import EngineCoreOutput, FinishReason
        from vllm.v1.metrics.stats import PrefillStats

        reason, stats = FinishReason.LENGTH if ends else None, PrefillStats(num_cached_tokens=cached)
        output = EngineCoreOutput(self.ids[index], [7] * tokens, finish_reason=reason, prefill_stats=stats)
        return list(self.processor.process_outputs([output]).request_outputs)

    def meter(self) -> Any:
        from models.vllm.counting_client import UsageMeter

        return UsageMeter(SimpleNamespace(output_processor=self.processor), "outer", 100)


async def test_choices_that_ended_between_two_looks_are_counted() -> None:
    choices = Choices(8)
    meter = choices.meter()
    for index in range(7):
        assert choices.make(index, 40, ends=True) == []
    choices.make(7, 5)
    assert meter.peek().completion_tokens == 7 * 40 + 5
    assert meter.peek().prompt_tokens == len(PROMPT)


async def test_a_choice_that_was_seen_and_then_ended_is_counted_once() -> None:
    choices = Choices(2)
    meter = choices.meter()
    choices.make(0, 10)
    assert meter.peek().completion_tokens == 10
    choices.make(0, 2, ends=True)
    choices.make(1, 1)
    assert meter.peek().completion_tokens == 13
    (output,) = choices.make(1, 3, ends=True)
    meter.count(output)
    assert meter.usage().completion_tokens == 16


async def test_one_choice_alone_is_counted_while_it_is_made() -> None:
    choices = Choices(1)
    meter = choices.meter()
    assert meter.peek().completion_tokens == 0
    choices.make(0, 4)
    assert meter.peek().completion_tokens == 4


async def test_a_prompt_counts_from_when_it_is_handed_over_and_a_default_limit_holds() -> None:
    meter = Choices(1).meter()
    assert not meter.handed_over.done() and meter.usage().prompt_tokens == 0
    for asked, got in ((None, 100), (4000, 100), (7, 7)):
        params = SimpleNamespace(max_tokens=asked, n=1)
        meter.hand_over({"prompt_token_ids": PROMPT}, params)
        assert params.max_tokens == got
    assert meter.handed_over.done() and meter.usage().prompt_tokens == len(PROMPT)


def handed_over(choices: Choices, n: int) -> Any:
    meter = choices.meter()
    meter.hand_over({"prompt_token_ids": PROMPT}, SimpleNamespace(max_tokens=100, n=n))
    return meter


async def test_what_one_choice_found_in_the_prefix_cache_is_counted_with_its_first_token() -> None:
    choices = Choices(1)
    meter = handed_over(choices, 1)
    assert meter.peek().cached_tokens == 0
    choices.make(0, 1, cached=2)
    assert meter.peek().cached_tokens == 2
    (output,) = choices.make(0, 1, ends=True)
    meter.count(output)
    assert meter.usage().cached_tokens == 2


async def test_what_a_second_choice_finds_of_the_first_was_not_cached_before_the_request() -> None:
    """Else whoever asks for two choices would pay the price of cached input for a prompt that was computed for him."""
    choices = Choices(2)
    meter = handed_over(choices, 2)
    assert meter.peek().cached_tokens == 0
    assert choices.make(0, 5, ends=True, cached=0) == []
    (output,) = choices.make(1, 5, ends=True, cached=2)
    meter.count(output)
    assert meter.usage().cached_tokens == 0


async def test_what_every_choice_found_was_cached() -> None:
    choices = Choices(2)
    meter = handed_over(choices, 2)
    meter.peek()
    assert choices.make(0, 5, ends=True, cached=2) == []
    assert meter.peek().cached_tokens == 0, "the second may still find nothing"
    (output,) = choices.make(1, 5, ends=True, cached=3)
    meter.count(output)
    assert meter.usage().cached_tokens == 2


async def test_choices_that_ended_before_anybody_looked_count_as_not_cached() -> None:
    choices = Choices(2)
    meter = handed_over(choices, 2)
    assert choices.make(0, 1, ends=True, cached=0) == []
    (output,) = choices.make(1, 1, ends=True, cached=2)
    meter.count(output)
    assert meter.usage().cached_tokens == 0


async def test_tokens_of_a_stream_that_are_not_handed_out_yet_are_counted(tmp_path: Path) -> None:
    from transformers import AutoTokenizer
    from vllm.sampling_params import RequestOutputKind

    tokenizer = AutoTokenizer.from_pretrained(ensure_checkpoints(tmp_path)["pith-mini"])
    kind = RequestOutputKind.DELTA
    choices = Choices(1, tokenizer=tokenizer, output_kind=kind, detokenize=True, stream_interval=4)
    meter, sizes = choices.meter(), []
    for number in range(1, 11):
        for output in choices.make(0, 1, ends=number == 10):
            meter.count(output)
            sizes.append(len(output.outputs[0].token_ids))
        # A client that leaves here pays for all of them.
        assert meter.peek().completion_tokens == number
    assert sizes == [1, 4, 4, 1] and meter.usage().completion_tokens == 10


async def test_a_crowd_of_streams_has_its_tokens_several_at_a_time() -> None:
    from models.vllm.counting_client import Gathering, gathering_of, meters_of

    plain = EngineRequest("r", "m", ({"role": "user", "content": "hi"},), 9, stream=True, cache_salt="s")
    crowds = [gathering_of(plain, others, 0.03) for others in (0, 15, 16, 63, 10_000)]
    assert [gathering.tokens for gathering in crowds] == [1, 1, 2, 4, 8]
    assert [round(gathering.interval_s, 3) for gathering in crowds] == [0.03, 0.03, 0.03, 0.06, 0.09]
    assert (
        gathering_of(plain, 10_000, 0.3).interval_s == 0.5
        and gathering_of(plain, 10_000, 1.0).interval_s == 1.0
    )
    # Calls are parsed token by token; who asked for each event by itself gets it.
    assert gathering_of(replace(plain, options={"tools": [{}]}), 10_000, 0.03) == Gathering(1, 0.09)
    assert (
        gathering_of(plain, 10_000, 0.0)
        == gathering_of(replace(plain, stream=False), 10_000, 0.03)
        == Gathering()
    )
    for at_once, wanted in ((1, None), (3, 3)):
        together = meters_of(plain, ["r"], None, places=4, gathering=Gathering(at_once, 0.5))
        assert together.interval_s == 0.5
        (meter,) = together.parts.values()
        params = SimpleNamespace(max_tokens=9, n=1, stream_interval=None)
        meter.hand_over({"prompt_token_ids": PROMPT}, params)
        assert params.stream_interval == wanted
