"""Metrics of upkeep."""

from __future__ import annotations

import asyncio

from serve.metrics.background import UpkeepMetrics
from tests.serve.metrics.readings import counting


async def test_tasks_are_counted_after_each_round() -> None:
    counts, registry = counting()
    metrics, never = UpkeepMetrics(counts), asyncio.Event()
    before = len(asyncio.all_tasks())
    waiting = [asyncio.create_task(never.wait()) for _ in range(5)]
    metrics.observe("replay", 0.0)
    assert registry.get_sample_value("pith_event_loop_tasks") == before + 5
    never.set()
    await asyncio.gather(*waiting)
    metrics.observe("replay", 0.0)
    assert registry.get_sample_value("pith_event_loop_tasks") == before
