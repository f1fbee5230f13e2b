"""The load generator against a fake server: what it counts, what it throws away, and what it refuses to report."""

from __future__ import annotations

import time

import pytest

from benchmarks.load.exchange import Failed, chat
from benchmarks.load.loop import Closed, Open, Target, Window, measure
from benchmarks.load.processes import GENERATOR, Cpu
from tests.benchmarks.load.fake_server import FakeServer

WINDOW = Window(warm_up_s=0.1, seconds=0.8)
JSON = chat("fake", tokens=4, stream=False)
SSE = chat("fake", tokens=4, stream=True)


async def test_a_closed_loop_keeps_its_number_of_clients_busy_and_throws_the_warm_up_away() -> None:
    async with FakeServer(token_s=0.005).listening() as server:
        run = await measure(Target(server.url, "a key"), JSON, Closed(3), WINDOW)
    assert server.most_busy == 3
    assert server.keys == {"Bearer a key"}
    assert 0 < len(run.samples) < len(server.requests)
    assert all(0 <= sample.done_s < run.seconds for sample in run.samples)
    assert all(sample.latency_ms >= 19 for sample in run.samples)
    assert run.tokens_per_s == pytest.approx(4 * run.requests_per_s)


async def test_the_keys_of_several_projects_take_turns() -> None:
    async with FakeServer(token_s=0.001).listening() as server:
        await measure(Target(server.url, "a", ("b", "c")), JSON, Closed(1), WINDOW)
    assert server.keys == {"Bearer a", "Bearer b", "Bearer c"}


async def test_an_open_loop_sends_on_time_however_slow_the_server_and_counts_the_wait() -> None:
    async with FakeServer(token_s=0.02).listening() as server:
        run = await measure(Target(server.url), JSON, Open(100), WINDOW)
    assert len(server.requests) == 90
    assert server.most_busy > 3
    assert all(sample.latency_ms >= 79 for sample in run.samples)


async def test_requests_differ_so_that_no_cache_answers_them_all() -> None:
    async with FakeServer(token_s=0.001).listening() as server:
        await measure(Target(server.url), JSON, Closed(2), WINDOW)
    prompts = [request["messages"][0]["content"] for request in server.requests[:20]]
    assert len(set(prompts)) == 20
    assert all(request["ignore_eos"] and request["max_tokens"] == 4 for request in server.requests)


async def test_a_stream_is_timed_by_the_events_that_carry_text() -> None:
    async with FakeServer(token_s=0.01).listening() as server:
        run = await measure(Target(server.url), SSE, Closed(1), WINDOW)
    for sample in run.samples:
        assert len(sample.arrivals_ms) == 4
        assert sample.ttft_ms is not None and 9 <= sample.ttft_ms < sample.latency_ms
        assert sample.per_token_ms is not None and sample.per_token_ms >= 9
    assert len(run.gaps_ms()) == 3 * len(run.samples)


async def test_an_error_in_the_warm_up_or_in_the_measurement_ends_the_run_at_once() -> None:
    for first_bad in (1, 40):
        async with FakeServer(token_s=0.001, fails_from=first_bad).listening() as server:
            began = time.monotonic()
            with pytest.raises(Failed, match=r"503 .*told to fail"):
                await measure(Target(server.url), JSON, Closed(2), Window(0.1, 30))
            assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("omits", "complaint"),
    [
        ("usage", "without usage"),
        ("done", r"without text or \[DONE\]"),
        ("everything", "the stream failed.*the fake engine broke"),
    ],
)
async def test_a_stream_that_is_not_whole_is_no_figure(omits: str, complaint: str) -> None:
    async with FakeServer(omits=omits).listening() as server:
        with pytest.raises(Failed, match=complaint):
            await measure(Target(server.url), SSE, Closed(1), WINDOW)


async def test_fewer_tokens_than_asked_for_are_no_figure() -> None:
    async with FakeServer(missing_tokens=1).listening() as server:
        with pytest.raises(Failed, match="3 tokens instead of 4"):
            await measure(Target(server.url), JSON, Closed(1), WINDOW)


async def test_a_server_that_is_not_there_is_no_figure() -> None:
    with pytest.raises(Failed, match="ClientConnector"):
        await measure(Target("http://127.0.0.1:9"), JSON, Closed(1), WINDOW)


async def test_a_server_too_slow_for_the_window_is_no_figure() -> None:
    async with FakeServer(token_s=0.2).listening() as server:
        with pytest.raises(Failed, match=r"no request ended within 0\.\d s"):
            await measure(Target(server.url), JSON, Closed(1), Window(0.1, 0.1))


async def test_cpu_of_the_generator_is_counted_beside_the_servers() -> None:
    async with FakeServer().listening() as server:
        run = await measure(Target(server.url), JSON, Closed(2), WINDOW, cpu=Cpu(lambda: []))
    assert set(run.cpu_s) == {GENERATOR}
    assert 0 < run.cpu_ms_per_request()[GENERATOR] < 100
