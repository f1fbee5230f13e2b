"""A collection: whole cents asked of a workspace for what it used, and the states that it may go through.

What is posted and not yet cut into a collection is uncollected. A collection counts as cut in every state but
void: one that failed is still owed, by itself, and only voiding returns its amount to the uncollected.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from billing.errors import IllegalMove, InvalidCollection

State = Literal["open", "paid", "failed", "void"]
STATES: tuple[State, ...] = get_args(State)

NANO_PER_CENT = 10_000_000
MAX_REFERENCE_CHARS = 256
MAX_NOTE_CHARS = 1024

# Money that arrived, or was given up, stays so. What failed may be tried again, or be paid in another way.
_MOVES: dict[State, tuple[State, ...]] = {
    "open": ("paid", "failed", "void"),
    "failed": ("open", "paid", "void"),
    "paid": (),
    "void": (),
}
FINAL: tuple[State, ...] = tuple(state for state in STATES if not _MOVES[state])


@dataclass(frozen=True, slots=True)
class Collection:
    """One row. `reference` is the payment system's; `times_opened` rises when one that failed is opened again."""

    id: str
    workspace_id: str
    workspace_name: str
    idempotency_key: str
    cents: int
    nano_usd: int
    state: State
    reference: str | None
    note: str | None
    times_opened: int
    handed_over_at: datetime | None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None


def whole_cents(uncollected_nano_usd: int, *, threshold_cents: int) -> int:
    """The cents that a collection of this balance asks for: 0 below the threshold. The remainder carries over."""
    if threshold_cents < 1:
        raise ValueError(f"threshold_cents: must be at least 1, not {threshold_cents}")
    cents = uncollected_nano_usd // NANO_PER_CENT
    return cents if cents >= threshold_cents else 0


def check_move(collection_id: str, state: State, wanted: State) -> None:
    """Raises `IllegalMove`, which names both states."""
    if wanted not in _MOVES[state]:
        raise IllegalMove(collection_id, state=state, wanted=wanted, allowed=_MOVES[state])


def checked_text(field: str, text: str | None, most: int) -> str | None:
    """Raises `InvalidCollection` for text that is empty, too long or not printable."""
    if text is not None and not (1 <= len(text) <= most and text.isprintable()):
        raise InvalidCollection(f"{field}: must be 1 to {most} printable characters, not {text[:80]!r}")
    return text
