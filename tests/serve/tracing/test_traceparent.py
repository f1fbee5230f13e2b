"""What a caller says of its trace is believed only where it is valid, and decides nothing."""

from __future__ import annotations

import pytest

from serve.tracing.otlp import Sampling
from serve.tracing.spans import RemoteParent, remote_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def parent_of(*values: str, state: str | None = None) -> RemoteParent | None:
    headers = [(b"traceparent", value.encode("latin-1")) for value in values]
    if state is not None:
        headers.append((b"tracestate", state.encode("latin-1")))
    return remote_parent(headers)


def test_a_valid_parent_is_read_with_its_state() -> None:
    assert parent_of(GOOD, state="a=1") == RemoteParent(TRACE, SPAN, is_sampled=True, state="a=1")
    assert parent_of(f"00-{TRACE}-{SPAN}-00") == RemoteParent(TRACE, SPAN, is_sampled=False)
    # Of a later version, what is known of this one.
    assert parent_of(f"01-{TRACE}-{SPAN}-03-more") == RemoteParent(TRACE, SPAN, is_sampled=True)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        GOOD.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{GOOD}-more",
        f"{GOOD}\xe9",
        f"00-{TRACE}-{SPAN}-01" + "0" * 10_000,
    ],
)
def test_what_is_not_valid_is_no_parent(value: str) -> None:
    assert parent_of(value) is None


def test_two_parents_are_none() -> None:
    assert parent_of(GOOD, GOOD) is None


@pytest.mark.parametrize("state", ["a=" + "x" * 600, "a=\x01", "a=\xe9"])
def test_a_state_that_is_long_or_no_text_is_left_out(state: str) -> None:
    found = parent_of(GOOD, state=state)
    assert found is not None and found.state == ""


ASKS = RemoteParent(TRACE, SPAN, is_sampled=True)


def test_a_caller_traces_no_more_than_its_rate_and_nothing_by_default() -> None:
    now = [0.0]
    sampling = Sampling(0, 2, clock=lambda: now[0])
    assert [sampling.takes(ASKS) for _ in range(4)] == [True, True, False, False]
    now[0] = 0.5
    assert [sampling.takes(ASKS) for _ in range(2)] == [True, False]
    now[0] = 1000.0
    assert [sampling.takes(ASKS) for _ in range(3)] == [True, True, False]
    assert not sampling.takes(RemoteParent(TRACE, SPAN, is_sampled=False))
    assert not any(Sampling(0, 0).takes(ASKS) for _ in range(100))


def test_of_all_others_chance_takes_its_part_whatever_their_trace_id() -> None:
    draws = iter([0.09, 0.1, 0.5])
    sampling = Sampling(0.1, 0, draw=lambda: next(draws))
    assert [sampling.takes(None), sampling.takes(ASKS), sampling.takes(None)] == [True, False, False]
