"""No text of a customer stays in a receipt: neither in a new one nor in one that an older release left in a spool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from billing.price import Cost
from billing.usage import UsageFigures, event_from_json, event_to_json, without_text

if TYPE_CHECKING:
    from tests.billing.conftest import Books

CANARY = "patient 4711 has \"canary\" \\u0041 in her 'notes'"
FLAG = {"code": "number_changed", "severity": "high", "count": 2}
EXAMPLES = [{"start": 3, "end": 9, "text": CANARY}, {"start": 12, "end": 14, "text": "12"}]
RECEIPT = {"original_tokens": 10, "risk_flags": [{**FLAG, "examples": EXAMPLES}]}
KEPT = {
    "original_tokens": 10,
    "risk_flags": [{**FLAG, "examples": [{"start": 3, "end": 9}, {"start": 12, "end": 14}]}],
}


def test_codes_counts_and_offsets_are_kept_and_text_is_not() -> None:
    scrubbed = without_text(json.dumps(RECEIPT))
    assert scrubbed is not None and json.loads(scrubbed) == KEPT
    assert without_text(scrubbed) == scrubbed
    assert without_text(None) is None


@pytest.mark.parametrize("text", ['{"text": ', '"text"[', '"text"' + "[" * 100_000])
def test_what_is_no_receipt_is_kept_as_nothing(text: str) -> None:
    assert without_text(text) is None


async def test_a_settled_compression_keeps_no_text(books: Books) -> None:
    hold = await books.hold(await books.new_caller())
    figures = UsageFigures(1, 2, 0, stream=False, receipt=json.dumps(RECEIPT))
    await books.ledger.settle(
        hold, figures=figures, cost=Cost(1, 1, False), outcome="completed", now=books.now
    )
    (event,) = await books.events()
    assert json.loads(event.receipt or "") == KEPT


async def test_what_an_older_release_spooled_arrives_without_text(books: Books) -> None:
    hold = await books.hold(await books.new_caller())
    await books.settle(hold)
    (event,) = await books.events()
    fields = json.loads(event_to_json(event)) | {"receipt": json.dumps(RECEIPT)}
    assert CANARY not in str(event_from_json(json.dumps(fields)))
