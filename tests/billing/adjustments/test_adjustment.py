"""What may be asked for as a credit, an adjustment or a refund."""

from __future__ import annotations

from typing import Any

import pytest

from billing.adjustments.adjustment import InvalidAdjustment, lowering, wanted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nano_usd", 0),
        ("nano_usd", True),
        ("nano_usd", 10**18 + 1),
        ("nano_usd", -(10**18) - 1),
        ("reason", ""),
        ("reason", "x" * 1025),
        ("reason", "a\x00b"),
        ("reason", "\ud800"),
        ("idempotency_key", "x" * 129),
        ("idempotency_key", " "),
    ],
)
def test_a_field_that_cannot_be_used_is_named(field: str, value: Any) -> None:
    given: dict[str, Any] = {"nano_usd": 1, "reason": "r", "idempotency_key": "k"} | {field: value}
    with pytest.raises(InvalidAdjustment, match=f"^{field}: ") as raised:
        wanted("ws_1", "adjustment", **given)
    assert raised.value.field == field


@pytest.mark.parametrize("nano_usd", [0, -1])
def test_a_credit_is_given_as_a_number_above_zero(nano_usd: int) -> None:
    assert lowering(5) == -5
    with pytest.raises(InvalidAdjustment, match="above 0"):
        lowering(nano_usd)
