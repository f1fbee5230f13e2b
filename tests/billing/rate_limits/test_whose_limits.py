"""Limits of persons, tags and workspaces beside those of keys and projects: all count a request, or none does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest

from billing.caller import EACH_PERSON, NO_LIMITS, Caller, ProjectLimits
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import RateLimits, counted_for

NOW = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)
ONCE, TWICE = ProjectLimits(requests_per_minute=1), ProjectLimits(requests_per_minute=2)
MANY = ProjectLimits(requests_per_minute=100, tokens_per_minute=1000, max_in_flight=100)
WHO = Caller("ws_1", "prj_1", "key", True, MANY, key_limits=MANY, limits_key_id="key", workspace_limits=MANY)
ALICE = replace(WHO, person="psn_a", tags=("nightly", "support"))
LABELS = {EACH_PERSON: MANY, "nightly": MANY, "support": MANY}


def labelled(of_label: Mapping[str, ProjectLimits], who: Caller = ALICE) -> Caller:
    return replace(who, label_limits=of_label)


async def admit(limiter: RateLimits, who: Caller, tokens: int = 1) -> None:
    await limiter.admit(who, tokens_bound=tokens, now=NOW)


async def used(limiter: RateLimits, who: Caller) -> dict[str, tuple[int, int]]:
    """Requests and tokens of this minute, by whose they are; each has `MANY`."""
    states = {scope: await limiter.state(one, now=NOW) for scope, one in counted_for(who).items()}
    return {
        scope: (100 - found["requests_per_minute"].remaining, 1000 - found["tokens_per_minute"].remaining)
        for scope, found in states.items()
    }


SCOPES = ("key", "person", "tag nightly", "tag support", "project", "workspace")


def limited(scope: str, limits: ProjectLimits) -> Caller:
    """With these limits in one scope, and wide ones in all others."""
    kind, _, tag = scope.partition(" ")
    if kind in ("person", "tag"):
        return labelled(LABELS | {tag or EACH_PERSON: limits})
    field = {"key": "key_limits", "project": "limits", "workspace": "workspace_limits"}[kind]
    return replace(labelled(LABELS), **{field: limits})  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_one_refuses_is_counted_nowhere_and_names_it(scope: str) -> None:
    limiter, who = RateLimits(), limited(scope, replace(MANY, tokens_per_minute=30))
    words = "API key" if scope == "key" else scope
    for _ in range(3):
        with pytest.raises(RateLimited, match=f"^{words} rate limit exceeded: 30 tokens a minute") as refused:
            await admit(limiter, who, 31)
    assert refused.value.scope == scope.partition(" ")[0] and refused.value.retry_after_s == 60
    assert refused.value.state.tokens is not None and refused.value.state.tokens.limit == 30
    assert await used(limiter, labelled(LABELS)) == dict.fromkeys(SCOPES, (0, 0))
    # Nor is a place in flight taken.
    one_at_once = limited(scope, replace(MANY, max_in_flight=1))
    first = await limiter.admit(one_at_once, tokens_bound=30, now=NOW)
    with pytest.raises(RateLimited, match=f"^{words} rate limit exceeded: 1 requests at the same time"):
        await admit(limiter, one_at_once)
    await first.done(20)
    assert await used(limiter, labelled(LABELS)) == dict.fromkeys(SCOPES, (1, 20))
    await admit(limiter, one_at_once)


@pytest.mark.parametrize("scope", SCOPES)
async def test_of_requests_at_once_exactly_the_limit_is_let_in(scope: str) -> None:
    limiter, who = RateLimits(), limited(scope, replace(MANY, requests_per_minute=7))
    told = await asyncio.gather(*(admit(limiter, who) for _ in range(40)), return_exceptions=True)
    assert [type(one) for one in told if one is not None] == [RateLimited] * 33
    assert await used(limiter, labelled(LABELS)) == dict.fromkeys(SCOPES, (7, 7))


async def test_headers_tell_of_the_tightest() -> None:
    admission = await RateLimits().admit(limited("person", TWICE), tokens_bound=10, now=NOW)
    requests, tokens = admission.headers_state.requests, admission.headers_state.tokens
    assert requests is not None and (requests.limit, requests.remaining) == (2, 1)
    assert tokens is not None and tokens.remaining == 990


async def test_persons_tags_and_projects_count_apart() -> None:
    """The same person in two projects of a workspace, the same tag there, and a tag that is named as a person is."""
    limiter = RateLimits()
    for project, person in product(("prj_1", "prj_2"), ("psn_a", "psn_b")):
        who = replace(WHO, project_id=project, person=person)
        await admit(limiter, labelled({EACH_PERSON: ONCE}, who))
        with pytest.raises(RateLimited, match=r"^person rate limit"):
            await admit(limiter, labelled({EACH_PERSON: ONCE}, who))
    for project, tag in product(("prj_1", "prj_2"), ("psn_a", "models", "workspace")):
        who = replace(WHO, project_id=project, tags=(tag,))
        await admit(limiter, labelled({tag: ONCE}, who))
        with pytest.raises(RateLimited, match=f"^tag {tag} rate limit exceeded"):
            await admit(limiter, labelled({tag: ONCE}, who))
    # Who names nobody, and nothing that has a limit, is not counted for anybody.
    for _ in range(3):
        await admit(limiter, labelled({EACH_PERSON: ONCE, "nightly": ONCE}, replace(WHO, tags=("other",))))


async def test_a_workspace_counts_all_its_projects_and_no_other_workspace() -> None:
    limiter, who = RateLimits(), Caller("ws_1", "prj_1", "key", True, NO_LIMITS, workspace_limits=TWICE)
    await admit(limiter, who)
    await admit(limiter, replace(who, project_id="prj_2"))
    with pytest.raises(RateLimited, match=r"^workspace rate limit exceeded: 2 requests a minute"):
        await admit(limiter, replace(who, project_id="prj_3"))
    await admit(limiter, replace(who, workspace_id="ws_2"))


async def test_lists_count_apart_and_for_no_person_and_lines_of_batches_not_by_minute() -> None:
    limiter, who = RateLimits(), labelled({EACH_PERSON: ONCE, "support": ONCE})
    who = replace(who, workspace_limits=TWICE)
    await admit(limiter, who)
    for _ in range(2):
        await admit(limiter, who.counted_apart("models"))
    with pytest.raises(RateLimited, match=r"^workspace rate limit"):
        await admit(limiter, who.counted_apart("models"))
    for _ in range(3):
        await admit(limiter, replace(who, background=True))
    with pytest.raises(RateLimited, match=r"^person rate limit"):
        await admit(limiter, who)


async def test_prompts_of_one_project_are_counted_one_at_a_time_whoever_asks() -> None:
    limiter, running, most = RateLimits(), 0, 0

    async def count() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 5

    tight, who = {EACH_PERSON: ProjectLimits(tokens_per_minute=10)}, Caller("w", "p", "key", True, NO_LIMITS)
    asked = (
        limiter.admit(
            labelled(tight, replace(who, person=f"psn_{number}")),
            tokens_bound=100,
            tokens_least=1,
            count_tokens=count,
            now=NOW,
        )
        for number in range(20)
    )
    await asyncio.gather(*asked)
    assert most == 1
