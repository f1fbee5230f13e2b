"""The benchmark of routing by prefix: its conversations grow, its servers differ in one key, its ratios are right."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks import prefix_cache
from benchmarks.load.sample import Figures, Sample
from serve.config.settings import load_settings


def test_each_turn_has_all_that_was_said_before_and_a_new_question() -> None:
    turns = [
        orjson.loads(body)["messages"] for body in prefix_cache.conversation("model", "A document.", turns=3)
    ]
    assert [len(turn) for turn in turns] == [1, 3, 5]
    assert turns[1][:1] == turns[0]
    assert turns[2][:3] == turns[1]
    assert turns[1][-1] != turns[2][-1]


@pytest.mark.parametrize("routing", prefix_cache.ROUTINGS)
def test_the_servers_are_configured_alike_but_for_the_routing(tmp_path: Path, routing: str) -> None:
    base = Path("configs/embedded.yaml")
    path, model = prefix_cache.config_with(base, tmp_path, routing=routing, replicas=2)
    made, given = load_settings(path), load_settings(base)
    first = made.models[0]
    assert (first.id, first.replicas.min, first.replicas.max, first.replicas.routing) == (
        model,
        2,
        2,
        routing,
    )
    alike = first.model_copy(update={"replicas": given.models[0].replicas})
    assert made.model_copy(update={"models": [alike, *made.models[1:]]}) == given


def test_the_report_has_hit_rates_by_tokens_and_ratios_of_the_same_round() -> None:
    def one(prompt: float, cached: float, seconds: float, ttft_ms: float) -> prefix_cache.Round:
        sample = Sample(0.0, 2 * ttft_ms, Figures(8), (ttft_ms, 2 * ttft_ms))
        return prefix_cache.Round(prompt, cached, seconds, [sample])

    found = prefix_cache.Found(
        {
            "prefix_cache": [one(1000, 750, 2, 10), one(1000, 700, 2, 12)],
            "round_robin": [one(1000, 500, 4, 20), one(1000, 400, 3, 16)],
        }
    )
    made = prefix_cache.report(prefix_cache.arguments([]), {}, found)
    text = made.markdown()
    assert "| prefix_cache | 0.72 (0.70 to 0.75) |" in text
    assert "| round_robin | 0.45 (0.40 to 0.50) |" in text
    assert "TTFT p50 by prefix over in turn: 0.62 (0.50 to 0.75); turns/s: 1.75 (1.50 to 2.00)." in text
    picture = made.pictures["prefix-cache"]
    assert picture.title.startswith("Routing by prefix finds 72% of prompt tokens in the cache")
    assert picture.panels[0].lines["least and greatest"] == [(0.7, 0), (0.75, 0), (0.4, 1), (0.5, 1)]
