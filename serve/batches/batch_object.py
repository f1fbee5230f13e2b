"""A batch as OpenAI's clients read it."""

from dataclasses import asdict
from typing import Any

import orjson

from billing.batches.batch import Batch, Counts


def batch_object(batch: Batch) -> dict[str, Any]:
    """OpenAI's batch object, with the part of the prices that its requests are charged."""
    new, counts, moments = batch.new, batch.counts, asdict(batch.moments)
    errors = orjson.loads(batch.errors) if batch.errors else None
    return {
        "id": new.id,
        "object": "batch",
        "endpoint": new.endpoint,
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": new.input_file_id,
        "completion_window": new.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": int(moments.pop("created")),
        "expires_at": int(moments.pop("expires")),
        **{f"{name}_at": None if at is None else int(at) for name, at in moments.items()},
        "request_counts": {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "usage": _usage(counts) if batch.has_ended else None,
        "metadata": orjson.loads(new.metadata) if new.metadata else None,
        "price_factor": new.price_ppm / 10**6,
    }


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens},
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }
