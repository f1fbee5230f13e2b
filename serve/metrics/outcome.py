"""The few words for how a model's request ended: what a dashboard groups by."""

from typing import Literal, get_args

from compression.pipeline.errors import CompressorOverloaded
from serve.http.errors import problem_of

Outcome = Literal["completed", "refused", "overloaded", "unavailable", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def outcome_of(error: BaseException) -> Outcome:
    """`refused`: the caller can put it right; `cancelled`: the client left; the others are the server's."""
    if not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, CompressorOverloaded):
        return "overloaded"
    try:
        status = problem_of(error).status
    except KeyError:
        return "failed"
    if status < 500:
        return "refused"
    return "unavailable" if status == 503 else "failed"
