"""What a chat request asks of an engine's places."""

from models.engine import EngineRequest
from serve.fairness.queue import Claim


def choices_of(request: EngineRequest) -> int:
    """How many sequences the engine runs for it."""
    return int(request.options.get("n") or 1)


def claim_of(request: EngineRequest, *, places: int) -> Claim:
    """`places`, in the name of its project. Its tokens are those that it may generate: those of the prompt are
    known when it has ended."""
    tokens = request.max_tokens * choices_of(request)
    return Claim(request.project_id, request.project_weight, places, tokens)
