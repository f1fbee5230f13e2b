"""Usage and what compression saved, in plain values: all money as exact decimal text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from billing.books.saving import Side
from billing.price import exact_usd

if TYPE_CHECKING:
    from billing.books.holdout import Comparison
    from billing.books.usage_report import UsageSum


COLUMNS = {
    "workspace": ("workspace", "workspace_id"),
    "project": ("project", "project_id"),
    "key": ("key", "key_id"),
    "model": ("model",),
    "route": ("route",),
    "day": ("day",),
    "month": ("month",),
}


SAVINGS = ("tokens_saved", "saved_usd", "compression_usd", "net_saved_usd")


SUMS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "written_off_usd")


COMPARED = (
    *("conversations", "requests", "original_tokens", "cost_usd", "held_out_conversations"),
    *("held_out_requests", "held_out_original_tokens", "held_out_cost_usd", "mixed_conversations"),
    *("measured_saving", "measured_low", "measured_high"),
)


def usage_fields(line: UsageSum) -> dict[str, Any]:
    return {
        **line.group,
        "requests": line.requests,
        "prompt_tokens": line.prompt_tokens,
        "completion_tokens": line.completion_tokens,
        "cached_tokens": line.cached_tokens,
        "cost_usd": exact_usd(line.cost_nano_usd),
        "written_off_usd": exact_usd(line.written_off_nano_usd),
        **saved_fields(line),
    }


def saved_fields(line: UsageSum) -> dict[str, Any]:
    """Gross, what the compression itself cost, and net."""
    return {
        "tokens_saved": line.tokens_saved,
        "saved_usd": exact_usd(line.saved_nano_usd),
        "compression_usd": exact_usd(line.compression_nano_usd),
        "net_saved_usd": exact_usd(line.net_saved_nano_usd),
    }


def comparison_fields(one: Comparison) -> dict[str, Any]:
    """Both sides, and the share that compression saved with its 95% interval; null where there are too few to say."""
    saving = one.saving
    shares = (None, None, None) if saving is None else (saving.share, saving.low, saving.high)
    return {
        **one.group,
        **_side_fields(one.treated, ""),
        **_side_fields(one.holdout, "held_out_"),
        "mixed_conversations": one.mixed,
        **dict(zip(COMPARED[-3:], (None if x is None else round(x, 4) for x in shares), strict=True)),
    }


def _side_fields(side: Side, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}conversations": side.conversations,
        f"{prefix}requests": side.requests,
        f"{prefix}original_tokens": side.tokens,
        f"{prefix}cost_usd": exact_usd(side.cost_nano_usd),
    }
