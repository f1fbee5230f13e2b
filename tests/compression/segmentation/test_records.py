"""Records of JSON keep what says which record they are, and the JSON parses whatever is kept of it."""

from __future__ import annotations

import json
from typing import Any

from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.segmentation import segment

NOTE = "The parcel was left with a neighbour who lives on the second floor, and nobody signed for it. "


def orders(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "state": "open" if n % 3 else "paid", "amount": 10.5 + n, "ordernr": f"#W{7919 * (n + 11)}",
            "buyer": f"{['Ann', 'Bob', 'Cy', 'Di'][n % 4]} number {n}", "weight": n * 3,
            "note": f"{NOTE * 5}Code {n}.", "track": [f"T{n * 104729 + 10**6}"], **more,
        }
        for n in range(12)
    ]  # fmt: skip


def identifying(value: object) -> set[str]:
    text = segment(json.dumps(value))
    return {text.text(unit).split('"')[1] for frame in text.frames for unit in frame.also}


def test_the_members_that_tell_records_apart_are_found_by_their_values() -> None:
    assert identifying(orders()) == {"ordernr", "buyer"}
    assert identifying({"meta": {"page": 1}, "result": orders()}) == {"ordernr", "buyer"}


def test_what_all_records_share_identifies_none() -> None:
    assert identifying(orders(tenant_id="t-1", kind="parcel")) == {"ordernr", "buyer"}


def test_a_record_without_siblings_is_told_by_what_its_members_are_called() -> None:
    assert identifying({"order": orders(order_id="W1")[0]}) == {"order_id"}


def test_what_is_kept_of_a_record_says_which_one_it_is(lexical: Compressor) -> None:
    value = {"orders": orders()}
    request = CompressionRequest("Which parcel has track T1837832, and where is it?", json.dumps(value), 0.1)
    result = lexical.compress(request)
    kept = json.loads(result.output)["orders"]
    assert any("T1837832" in order.get("track", ()) for order in kept)
    assert all("ordernr" in order and "buyer" in order for order in kept)
    assert result.receipt.output_tokens <= 0.1 * result.receipt.original_tokens


def test_a_record_can_be_kept_for_its_name_alone(lexical: Compressor) -> None:
    result = lexical.compress(CompressionRequest("Is there an order #W95028?", json.dumps(orders()), 0.04))
    assert any(order["ordernr"] == "#W95028" for order in json.loads(result.output))


def test_a_member_said_a_thousand_times_is_no_burden() -> None:
    one = "{" + ", ".join(f'"id": "x{n}"' for n in range(3000)) + "}"
    text = segment(f"[{one}, {one.replace('x', 'y')}]")
    assert max(len(frame.also) for frame in text.frames) <= 4
