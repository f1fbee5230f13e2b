"""What a request asks of an engine's places."""

from models.engine import EngineRequest
from serve.fairness.queue import Claim


def claim_of(request: EngineRequest, *, places: int) -> Claim:
    """`places`, in the name of its project. Its tokens are those that it may generate: those of the prompt are
    known when it has ended."""
    tokens = request.max_tokens * request.sequences
    if request.background:
        # Apart from what its project's other requests are served.
        return Claim(f"{request.project_id}:background", 1, places, tokens, background=True)
    return Claim(request.project_id, request.project_weight, places, tokens)
