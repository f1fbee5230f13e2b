"""Hits of replayed agents' sessions over four replicas, beside those of one cache as large as all of theirs."""

from __future__ import annotations

import pytest

from tests.serve.cluster.replayed_sessions import (
    Messages,
    blocks_of,
    in_one_cache,
    replayed,
    routed,
    sessions,
)

LIVE = 24


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("applications", [1, 5, 120])
def test_four_replicas_find_nearly_what_one_big_cache_does(applications: int, processes: int) -> None:
    found = sessions(120, applications=applications, seed=1)
    prompts, blocks = replayed(found, live=LIVE, seed=2), blocks_of(found, live=LIVE)
    hits = routed(prompts, blocks=blocks, processes=processes)
    assert hits.rate > 0.95 * in_one_cache(prompts, blocks=blocks).rate
    # No replica is left out because another one has what all begin with.
    assert min(hits.requests.values()) > len(prompts) / 8


def test_caches_too_small_for_the_sessions_that_are_under_way_cost_four_replicas_little_more() -> None:
    found = sessions(120, applications=1, seed=1)
    prompts, blocks = replayed(found, live=LIVE, seed=2), blocks_of(found, live=LIVE) // 2
    assert routed(prompts, blocks=blocks).rate > 0.93 * in_one_cache(prompts, blocks=blocks).rate


def test_what_replicas_tell_late_costs_little() -> None:
    found = sessions(120, applications=5, seed=1)
    prompts, blocks = replayed(found, live=LIVE, seed=2), blocks_of(found, live=LIVE)
    late, at_once = (routed(prompts, blocks=blocks, steps_late=steps).rate for steps in (20, 0))
    assert late > 0.95 * at_once


def test_without_what_replicas_tell_other_processes_would_find_less() -> None:
    prompts: list[Messages] = replayed(sessions(120, applications=120, seed=1), live=LIVE, seed=2)
    blocks = blocks_of(sessions(120, applications=120, seed=1), live=LIVE)
    never = routed(prompts, blocks=blocks, processes=4, steps_late=len(prompts)).rate
    assert never < 0.9 * routed(prompts, blocks=blocks, processes=4).rate
