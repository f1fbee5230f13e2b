"""Bound on the memory of scoring: in a core, vLLM computes log probabilities of few places of a prompt at once.

vLLM's workers make logits of every token of a prompt in a step for which `prompt_logprobs` are asked: with 16,384
tokens and a vocabulary of 150,000 that is 9.8 GB, beyond the memory that vLLM has measured for itself. A request of
`models.vllm.scoring` leaves a few rows to compute, since the rest of its prompt is in the prefix cache. Should it have
been dropped from there, the request is let go without its log probabilities, and says so by their absence.
"""

from typing import Any

# In `SamplingParams.extra_args`: how many of the last places are asked for.
SCORED = "pith_scored"
# As many rows as vLLM's own measurement of its memory has in a usual configuration (`max_num_seqs`).
MOST_ROWS = 256


def score_few_rows() -> None:
    """Have vLLM's schedulers in this process (`vllm.v1.core.sched.scheduler.Scheduler`) hold such requests to it:
    what is scheduled is looked at before a worker sees it, and of what comes back only the wanted rows go on."""
    from vllm.v1.core.sched.scheduler import Scheduler

    schedule, update = Scheduler.schedule, Scheduler.update_from_output
    if schedule.__name__ == "schedule_few_rows":
        # vLLM calls a plugin more than once.
        return

    def schedule_few_rows(self: Any, *args: Any, **options: Any) -> Any:
        drop_interrupted(self)
        scheduled = schedule(self, *args, **options)
        hold_to_few_rows(self, scheduled)
        return scheduled

    def update_from_few_rows(self: Any, scheduled: Any, output: Any) -> Any:
        if scored := scored_of(self):
            output.prompt_logprobs_dict.update(last_rows(scored, output.prompt_logprobs_dict))
        return update(self, scheduled, output)

    Scheduler.schedule, Scheduler.update_from_output = schedule_few_rows, update_from_few_rows


def scored_of(scheduler: Any) -> dict[str, int]:
    """The scored requests of a scheduler that workers have begun, with their rows. Empty where there is none: then
    nothing here costs a step anything."""
    found: dict[str, int] = getattr(scheduler, "scored", None) or {}
    return found


def drop_interrupted(scheduler: Any) -> None:
    """One that was preempted in the midst of its prompt would begin again with a worker that expects log probabilities
    of all of it. Whoever waits for it gives up in time."""
    for request_id in [*scored_of(scheduler)]:
        request = scheduler.requests.get(request_id)
        if request is None:
            del scheduler.scored[request_id]
        elif request.status.name == "PREEMPTED":
            scheduler.finish_requests([request_id], type(request.status).FINISHED_ABORTED)
            del scheduler.scored[request_id]


def hold_to_few_rows(scheduler: Any, scheduled: Any) -> None:
    """Of requests that begin in this step."""
    for new in scheduled.scheduled_new_reqs:
        params = new.sampling_params
        rows = (params.extra_args or {}).get(SCORED) if params is not None else None
        if rows is None:
            continue
        if len(new.prompt_token_ids) - new.num_computed_tokens > MOST_ROWS:
            params.prompt_logprobs = None
        else:
            scheduler.scored = {**scored_of(scheduler), new.req_id: rows}


def last_rows(scored: dict[str, int], found: dict[str, Any]) -> dict[str, Any]:
    """The last rows of each: of those before, which were cached, a worker has computed nothing."""
    return {
        request_id: type(found[request_id])(*(tensor[-rows:] for tensor in found[request_id][:3]))
        for request_id, rows in scored.items()
        if found.get(request_id) is not None
    }
