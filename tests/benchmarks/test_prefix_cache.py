"""The benchmark of routing by caches: its sessions grow, its servers differ in one thing, its ratios are right."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import prefix_cache
from benchmarks.load.agent_sessions import Replay, invented, recorded
from benchmarks.load.sample import Figures, Sample
from serve.config.settings import load_settings

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Find my order."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "42", "tool_call_id": "1"},
    {"role": "assistant", "content": "It is on its way."},
    {"role": "user", "content": "Thanks."},
]


def test_each_turn_has_all_that_was_said_before_and_something_new() -> None:
    sessions = invented(3, turns=6, seed=1)
    assert sessions == invented(3, turns=6, seed=1) != invented(3, turns=6, seed=2)
    for turns in sessions:
        assert 3 <= len(turns) <= 9
        for before, after in pairwise(turns):
            assert after[: len(before)] == before
            assert len(after) == len(before) + 2
    first, second, _ = (turns[0] for turns in sessions)
    assert first[0] == second[0] and first[1] != second[1]


def test_recorded_sessions_have_a_turn_for_each_reply_of_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl.gz"
    path.write_bytes(gzip.compress(orjson.dumps({"messages": MESSAGES}) + b"\n"))
    assert recorded(path, 10, seed=1) == [[MESSAGES[:2], MESSAGES[:4]]]


def test_all_turns_of_all_sessions_are_given_out_and_no_session_twice_at_once() -> None:
    sessions = invented(5, turns=6, seed=1)
    replay, given, waiting = Replay(sessions, live=3, seed=1), [], []
    while True:
        turn = replay.next() if len(waiting) < 2 else None
        if turn is not None:
            waiting.append(turn[0])
            given.append(turn[1])
            assert len(set(map(id, waiting))) == len(waiting)
        elif waiting:
            replay.answered(waiting.pop(0))
        else:
            break
    assert sorted(map(orjson.dumps, given)) == sorted(
        orjson.dumps(turn) for turns in sessions for turn in turns
    )


@pytest.mark.parametrize("routing", ["prefix_cache", "round_robin"])
def test_the_servers_are_configured_alike_but_for_replicas_and_caches(tmp_path: Path, routing: str) -> None:
    base = Path("configs/tiny.yaml")
    path, model = prefix_cache.config_with(base, tmp_path, routing=routing, replicas=2, cache_tokens=32_000)
    made, given = load_settings(path), load_settings(base)
    first, before = made.models[0], given.models[0]
    replicas = first.replicas
    assert (first.id, replicas.min, replicas.max, replicas.routing) == (model, 2, 2, routing)
    assert first.engine.args == {**before.engine.args, "num_gpu_blocks_override": 1000}
    alike = first.model_copy(update={"replicas": before.replicas, "engine": before.engine})
    assert made.model_copy(update={"models": [alike, *made.models[1:]]}) == given


def test_a_side_that_is_not_there_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    for words in (["--sides", "prefix_cache,wishes"], ["--data", str(tmp_path / "none.jsonl")]):
        with pytest.raises(SystemExit):
            prefix_cache.arguments(words)


def test_what_a_reply_says_of_the_cache_is_read_and_nothing_said_is_nothing_found() -> None:
    usage = {"completion_tokens": 8, "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}
    assert prefix_cache.figures_of({"usage": usage}) == Figures(8, prompt_tokens=100, cached_tokens=64)
    silent = {**usage, "prompt_tokens_details": None}
    assert prefix_cache.figures_of({"usage": silent}) == Figures(8, prompt_tokens=100)


def test_the_report_has_hit_rates_by_tokens_and_their_part_of_one_big_caches() -> None:
    def one(*cached: int, seconds: float = 2.0) -> prefix_cache.Round:
        figures = [Figures(8, prompt_tokens=1000, cached_tokens=each) for each in cached]
        return prefix_cache.Round(seconds, [Sample(0.0, 20, each, (10.0, 20.0)) for each in figures], 100.0)

    found = {"prefix_cache": one(700, 740), prefix_cache.BIG: one(800, 800), "round_robin": one(200, 520)}
    made = prefix_cache.report(prefix_cache.arguments([]), {}, [], found)
    text = made.markdown()
    assert "| prefix_cache | 0.720 | 0.900 | 10.0 / 10.0 | 1.0 |" in text
    assert "| round_robin | 0.360 | 0.450 |" in text
    picture = made.pictures["prefix-cache"]
    assert picture.title == (
        "Prompt tokens found in the cache: prefix_cache 72%, one_big_cache 80%, round_robin 36%"
    )
    assert picture.panels[0].lines["hit rate"] == [(0.72, 0), (0.8, 1), (0.36, 2)]
