"""The bound on what a core computes of a scored prompt, in fakes of vLLM's; and what is relied on in vLLM's own."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from models.vllm.scored_rows import (
    MOST_ROWS,
    SCORED,
    drop_interrupted,
    hold_to_few_rows,
    last_rows,
    scored_of,
)
from tests.vendor_source import found, parameters, text

SCHEDULER = "vllm.v1.core.sched.scheduler"


class Status(enum.Enum):
    RUNNING = 1
    PREEMPTED = 2
    FINISHED_ABORTED = 3


@dataclass
class Scheduler:
    requests: dict[str, Any] = field(default_factory=dict)
    finished: list[tuple[list[str], Status]] = field(default_factory=list)

    def finish_requests(self, ids: list[str], status: Status) -> None:
        self.finished.append((ids, status))


class Rows(NamedTuple):
    ids: list[int]
    log_probs: list[float]
    ranks: list[int]
    rest: None = None


def beginning(name: str, *, tokens: int, cached: int, extra: dict[str, Any] | None) -> Any:
    params = SimpleNamespace(extra_args=extra, prompt_logprobs=1)
    return SimpleNamespace(
        req_id=name, sampling_params=params, prompt_token_ids=[0] * tokens, num_computed_tokens=cached
    )


def step(*new: Any) -> Any:
    return SimpleNamespace(scheduled_new_reqs=new)


def test_a_scored_prompt_that_is_cached_keeps_its_log_probabilities_and_another_loses_them() -> None:
    scheduler = Scheduler()
    cached = beginning("cached", tokens=16_000, cached=16_000 - MOST_ROWS, extra={SCORED: 7})
    dropped = beginning("dropped", tokens=16_000, cached=16_000 - MOST_ROWS - 1, extra={SCORED: 7})
    hold_to_few_rows(scheduler, step(cached, dropped))
    assert cached.sampling_params.prompt_logprobs == 1
    assert dropped.sampling_params.prompt_logprobs is None
    assert scored_of(scheduler) == {"cached": 7}


def test_what_others_ask_of_their_prompts_is_left_alone() -> None:
    scheduler = Scheduler()
    echo = beginning("echo", tokens=16_000, cached=0, extra=None)
    pooled = SimpleNamespace(req_id="pooled", sampling_params=None)
    hold_to_few_rows(scheduler, step(echo, pooled))
    assert echo.sampling_params.prompt_logprobs == 1
    assert scored_of(scheduler) == {}


def test_one_that_was_preempted_is_dropped_and_one_that_has_ended_is_forgotten() -> None:
    scheduler = Scheduler({"runs": SimpleNamespace(status=Status.RUNNING)})
    scheduler.requests["waits"] = SimpleNamespace(status=Status.PREEMPTED)
    both = [beginning(name, tokens=9, cached=0, extra={SCORED: 2}) for name in ("runs", "waits", "ended")]
    hold_to_few_rows(scheduler, step(*both))
    drop_interrupted(scheduler)
    assert scheduler.finished == [(["waits"], Status.FINISHED_ABORTED)]
    assert scored_of(scheduler) == {"runs": 2}


def test_only_the_rows_that_are_wanted_leave_the_core() -> None:
    whole = Rows([*range(9)], [float(one) for one in range(9)], [1] * 9)
    assert last_rows({"a": 2, "b": 3}, {"a": whole, "b": None}) == {"a": Rows([7, 8], [7.0, 8.0], [1, 1])}


def test_vllms_scheduler_is_what_is_relied_on() -> None:
    assert parameters(SCHEDULER, "Scheduler.update_from_output") == [
        "scheduler_output",
        "model_runner_output",
    ]
    assert "prompt_logprobs_dict = model_runner_output.prompt_logprobs_dict" in text(
        SCHEDULER, "Scheduler.update_from_output"
    )
    assert parameters(SCHEDULER, "Scheduler.finish_requests")[:2] == ["request_ids", "finished_status"]
    for name in ("req_id", "prompt_token_ids", "sampling_params", "num_computed_tokens"):
        assert found("vllm.v1.core.sched.output", f"NewRequestData.{name}")
    for name in ("PREEMPTED", "FINISHED_ABORTED"):
        assert found("vllm.v1.request", f"RequestStatus.{name}")
    assert "self.skip_reading_prefix_cache is None" in text(
        "vllm.sampling_params", "SamplingParams.__post_init__"
    )
    # The workers compute rows of what asked for them when it began.
    for module, name in (
        ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._get_prompt_logprobs_dict"),
        ("vllm.v1.worker.gpu.sample.prompt_logprob", "PromptLogprobsWorker.compute_prompt_logprobs"),
    ):
        assert text(module, name)
