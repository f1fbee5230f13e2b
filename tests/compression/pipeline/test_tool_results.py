"""A tool's result keeps what an agent's next calls may repeat, and stays JSON."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.build import plain_compressor
from compression.pipeline.compression_model import CompressionRequest, Receipt
from compression.pipeline.pipeline import Compressor, Pipeline, calibration_of
from compression.pipeline.spec import ModelSpec
from compression.scorers.lexical import LexicalScorer
from compression.source.token_counter import TokenCounter

QUERY = 'Please cancel my subscription.\nget_account {"login": "mkrause"}'


@pytest.fixture(scope="session")
def compressor(counter: TokenCounter) -> Compressor:
    return plain_compressor(ModelSpec("lexical", "lexical", "unused", "pith-mini"), counter)


def account(rng: random.Random) -> dict[str, Any]:
    def subscription() -> dict[str, Any]:
        return {
            "subscription": f"sub-{rng.randrange(10**5, 10**6)}",
            "plan": rng.choice(["basic", "plus", "pro"]), "currency": "EUR", "renews": "automatically",
            "channel": "web shop", "price": rng.randrange(5, 90), "invoices": rng.randrange(40),
            "region": "central europe", "support": "standard", "newsletter": True, "language": "german",
        }  # fmt: skip

    return {
        "login": "mkrause",
        "greeting": "Welcome back to your account",
        "subscriptions": [subscription() for _ in range(6)],
    }


def test_identifiers_survive_where_words_and_flags_do_not(compressor: Compressor) -> None:
    body = account(random.Random(7))
    request = CompressionRequest(QUERY, json.dumps(body), 0.3, is_tool_result=True)
    result = compressor.compress(request)
    assert result.receipt.compression_ratio <= 0.3
    kept = json.loads(result.output)
    assert [each["subscription"] for each in kept["subscriptions"]] == [
        each["subscription"] for each in body["subscriptions"]
    ]


def test_what_the_conversation_has_anyway_makes_room_for_what_it_has_not(compressor: Compressor) -> None:
    numbers = [f"K-{7000 + at}" for at in range(12)]
    body = json.dumps({f"member{number[2:]}": {"number": number, "state": "active"} for number in numbers})

    def kept(known: tuple[str, ...]) -> int:
        request = CompressionRequest(QUERY, body, 0.4, is_tool_result=True, known=known)
        return sum(number in compressor.compress(request).output for number in numbers[6:])

    assert kept(known=tuple(numbers[:6])) > kept(known=())


def test_other_requests_come_out_as_before(compressor: Compressor) -> None:
    body = json.dumps(account(random.Random(8)))
    plain = compressor.compress(CompressionRequest(QUERY, body, 0.3))
    assert (
        plain.output != compressor.compress(CompressionRequest(QUERY, body, 0.3, is_tool_result=True)).output
    )
    text = "The pump was replaced. It is quiet now. " * 40
    as_result = compressor.compress(
        CompressionRequest(QUERY, text, 0.3, is_tool_result=True, known=("pump",))
    )
    assert as_result.output == compressor.compress(CompressionRequest(QUERY, text, 0.3)).output


def test_a_promise_for_a_result_rests_on_a_calibration_of_results(compressor: Compressor) -> None:
    body = json.dumps(account(random.Random(9)))

    def promised(keep: float) -> Receipt:
        return compressor.compress(
            CompressionRequest(QUERY, body, None, keep=keep, is_tool_result=True)
        ).receipt

    receipts = [promised(keep) for keep in (0.5, 0.8, 0.95, 0.99)]
    assert {receipt.calibration.name for receipt in receipts if receipt.calibration} == {
        "pith-lexical-results"
    }
    assert [receipt.output_tokens for receipt in receipts] == sorted(
        receipt.output_tokens for receipt in receipts
    )
    assert receipts[2].compression_ratio < 1
    plain = compressor.compress(CompressionRequest(QUERY, body, None, keep=0.95)).receipt
    assert plain.calibration is not None
    assert plain.calibration.name == "pith-lexical"


def test_without_a_calibration_of_results_a_promise_treats_them_as_any_text(counter: TokenCounter) -> None:
    spec = ModelSpec("lexical", "lexical", "unused", "pith-mini")
    compressor = Compressor(
        LexicalScorer.load(), Pipeline(counter, spec.settings, calibration=calibration_of(spec))
    )
    body = json.dumps(account(random.Random(9)))
    as_result = CompressionRequest(QUERY, body, None, keep=0.8, is_tool_result=True)
    assert (
        compressor.compress(as_result).output
        == compressor.compress(replace(as_result, is_tool_result=False)).output
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=30)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=60,
)


@pytest.mark.thorough
@settings(max_examples=60)
@given(
    body=st.lists(JSON, min_size=1, max_size=8),
    ratio=st.sampled_from([0.1, 0.3, 0.6]),
    indent=st.sampled_from([None, 1]),
)
def test_any_json_stays_json_within_the_ratio(
    compressor: Compressor, body: list[Any], ratio: float, indent: int | None
) -> None:
    source = json.dumps(body, indent=indent, ensure_ascii=False)
    result = compressor.compress(CompressionRequest(QUERY, source, ratio, is_tool_result=True))
    assert result.receipt.compression_ratio <= ratio
    assert not result.output or isinstance(json.loads(result.output), list)
