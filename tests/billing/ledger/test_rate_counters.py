"""Limits by hour and day: exact over all servers of a ledger, never forgotten, and given back as those a minute are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.accounts.keys import KeyTerms
from billing.caller import EACH_PERSON, Caller, ProjectLimits, WindowState
from billing.errors import LimitsUnavailable, RateLimited
from billing.ledger.budgets import KEPT_S, forget_old
from billing.ledger.rate_counters import LedgerCounters
from billing.rate_limits.counters import Answer, Ask
from billing.rate_limits.rate_limits import Admission, RateLimits, counted_for
from billing.store.database import FakeOutageDatabase, open_database

if TYPE_CHECKING:
    from tests.billing.conftest import Books

ROOT = Path(__file__).resolve().parents[3]
SERVERS, ASKED = 3, 40
SERVER = """
import asyncio, sys
from billing.caller import Caller, ProjectLimits
from billing.errors import RateLimited
from billing.ledger.rate_counters import LedgerCounters
from billing.rate_limits.rate_limits import RateLimits
from billing.store.database import open_database
from billing.usage import now

async def main(url, workspace, project, at, asked, limits):
    database = open_database(url, timeout_s=60, clock=lambda: at)
    limiter = RateLimits(longer=LedgerCounters(database))
    who = Caller(workspace, project, "key", True, ProjectLimits(**limits))
    async def ask():
        try:
            await limiter.admit(who, tokens_bound=10, now=now())
            return True
        except RateLimited:
            return False
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(await asyncio.gather(*(ask() for _ in range(asked)))), flush=True)
    await limiter.close()
    await database.close()

asyncio.run(main(*eval(sys.argv[1])))
"""


def admitted_together(asked: str) -> int:
    """By all servers, each in a process of its own, that begin at the same time."""
    command = [sys.executable, "-c", SERVER, asked]
    servers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(SERVERS)
    ]
    try:
        for server in servers:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
        for server in servers:
            assert server.stdin is not None
            server.stdin.write("go\n")
            server.stdin.flush()
        return sum(int(server.communicate(timeout=120)[0]) for server in servers)
    finally:
        for server in servers:
            server.kill()
            server.wait()


def limiter(books: Books) -> RateLimits:
    """As a server has it that was started just now."""
    return RateLimits(longer=LedgerCounters(books.database))


async def admit(books: Books, who: Caller, tokens: int = 10, limits: RateLimits | None = None) -> Admission:
    return await (limits or limiter(books)).admit(who, tokens_bound=tokens, now=books.clock.moment)


async def refusal(books: Books, who: Caller, tokens: int = 10) -> RateLimited:
    with pytest.raises(RateLimited) as refused:
        await admit(books, who, tokens)
    return refused.value


async def left(books: Books, who: Caller) -> dict[str, int]:
    found = await limiter(books).state(who, now=books.clock.moment)
    return {name: window.remaining for name, window in found.items()}


async def test_servers_of_one_ledger_together_let_in_exactly_the_limits(books: Books) -> None:
    limits = {"requests_per_hour": 50, "tokens_per_day": 305, "requests_per_day": 60}
    who = await books.new_caller(limits=ProjectLimits(**limits))
    asked = (books.url, who.workspace_id, who.project_id, books.clock(), ASKED, limits)
    assert await asyncio.to_thread(admitted_together, repr(asked)) == 30
    assert await left(books, who) == {"requests_per_hour": 20, "requests_per_day": 30, "tokens_per_day": 5}


async def test_what_one_window_refuses_is_counted_in_no_other(books: Books) -> None:
    limits = ProjectLimits(
        requests_per_minute=9, requests_per_hour=1, requests_per_day=5, tokens_per_hour=90, tokens_per_day=100
    )
    who = await books.new_caller(limits=limits)
    shared = limiter(books)
    assert (await refusal(books, who, tokens=95)).which == "tokens"
    await admit(books, who, 30, shared)
    for _ in range(3):
        with pytest.raises(RateLimited, match="1 requests an hour"):
            await admit(books, who, 30, shared)
    assert (await shared.state(who, now=books.now))["requests_per_minute"].remaining == 8
    assert await left(books, who) == {
        "requests_per_minute": 9,
        "requests_per_hour": 0,
        "requests_per_day": 4,
        "tokens_per_hour": 60,
        "tokens_per_day": 70,
    }


async def test_a_minute_that_refuses_takes_nothing_of_the_day(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_minute=1, requests_per_day=5))
    shared = limiter(books)
    first = await admit(books, who, limits=shared)
    # Clients are told of the minute.
    assert first.headers_state.requests is not None and first.headers_state.requests.limit == 1
    for _ in range(3):
        with pytest.raises(RateLimited, match="1 requests a minute"):
            await admit(books, who, limits=shared)
    assert (await left(books, who))["requests_per_day"] == 4


async def test_a_refusal_tells_of_the_window_that_refuses_and_when_to_come_back(books: Books) -> None:
    limits = ProjectLimits(requests_per_minute=9, requests_per_hour=2, requests_per_day=3)
    who = await books.new_caller(limits=limits)
    await books.at(books.now + timedelta(minutes=59, seconds=58.5))
    await admit(books, who)
    await admit(books, who)
    of_hour = await refusal(books, who)
    assert (of_hour.limit, of_hour.retry_after_s) == (2, 2)
    assert of_hour.state.requests == WindowState(limit=2, remaining=0, reset_s=1.5)
    await books.at(books.now + timedelta(minutes=59, seconds=59.999))
    assert (await refusal(books, who)).retry_after_s == 1
    # To the moment.
    await books.at(books.now + timedelta(hours=1))
    await admit(books, who)
    of_day = await refusal(books, who)
    assert (of_day.limit, of_day.retry_after_s) == (3, 11 * 3600)
    assert "3 requests a day" in str(of_day)
    await books.at(datetime(2026, 11, 21, tzinfo=UTC))
    assert (await left(books, who))["requests_per_day"] == 3


async def test_a_day_is_that_of_the_workspaces_time_zone_with_its_changes_of_clock(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_day=1))
    await books.accounts.change_workspace(who.workspace_id, {"time_zone": "Europe/Berlin"})
    # 25 hours long.
    began = datetime(2026, 10, 24, 22, tzinfo=UTC)
    await books.at(began)
    await admit(books, who)
    assert (await refusal(books, who)).retry_after_s == 25 * 3600
    await books.at(began + timedelta(hours=25))
    await admit(books, who)


async def test_a_restart_forgets_nothing(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_day=2, tokens_per_day=100))
    await (await admit(books, who, 60)).done(40)
    again = open_database(books.url, timeout_s=30, clock=books.clock)
    restarted = RateLimits(longer=LedgerCounters(again))
    await restarted.admit(who, tokens_bound=60, now=books.now)
    with pytest.raises(RateLimited):
        await restarted.admit(who, tokens_bound=1, now=books.now)
    await again.close()


async def test_tokens_are_corrected_after_the_reply_once_and_in_the_window_that_counted_them(
    books: Books,
) -> None:
    who = await books.new_caller(limits=ProjectLimits(tokens_per_hour=100, tokens_per_day=200))
    used_less, late, used_more = [await admit(books, who, 30) for _ in range(3)]
    for _ in range(2):
        await used_less.done(10)
    await used_more.done(50)
    assert await left(books, who) == {"tokens_per_hour": 10, "tokens_per_day": 110}
    await books.at(books.now + timedelta(hours=1))
    await admit(books, who, 100)
    await late.done(0)
    assert await left(books, who) == {"tokens_per_hour": 0, "tokens_per_day": 40}


async def test_a_prompt_is_counted_before_it_is_refused_for_its_bound(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(tokens_per_day=100))

    async def count() -> int:
        return 90

    await limiter(books).admit(who, tokens_bound=120, tokens_least=20, count_tokens=count, now=books.now)
    assert await left(books, who) == {"tokens_per_day": 10}
    assert "can be" not in str(await refusal(books, who, 11))
    assert "will always be refused" in str(await refusal(books, who, 101))


async def test_a_clock_that_is_set_back_opens_no_second_window(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_hour=1))
    await books.at(books.now + timedelta(hours=1))
    await admit(books, who)
    for moment in (books.now, books.now + timedelta(hours=1)):
        await books.at(moment)
        await refusal(books, who)
    await books.at(books.now + timedelta(hours=2))
    await admit(books, who)


async def test_a_rotated_key_has_what_is_left_of_the_one_before(books: Books) -> None:
    owner = await books.new_caller()
    terms = KeyTerms(limits=ProjectLimits(requests_per_day=2))
    made, token = await books.accounts.keys.create(owner.project_id, "key", terms=terms, now=books.now)
    for _ in range(2):
        await admit(books, await books.accounts.authenticate(token, now=books.now))
        _, token, _ = await books.accounts.keys.rotate(made.id, overlap=timedelta(days=1), now=books.now)
    new = await books.accounts.authenticate(token, now=books.now)
    with pytest.raises(RateLimited, match="API key rate limit exceeded: 2 requests a day"):
        await admit(books, new)
    await admit(books, owner)


async def test_what_the_project_refuses_is_not_counted_against_the_key(books: Books) -> None:
    day = ProjectLimits(requests_per_day=1)
    who = replace(await books.new_caller(limits=day), key_limits=replace(day, requests_per_day=5))
    await admit(books, who)
    assert "project" in str(await refusal(books, who))
    assert (await left(books, replace(who, project_id=f"key:{who.limits_key_id}"))) == {"requests_per_day": 0}


async def test_lines_of_batches_count_by_hour_and_day_alone_and_lists_do_not(books: Books) -> None:
    limits = ProjectLimits(requests_per_minute=1, max_in_flight=1, requests_per_day=3)
    who = await books.new_caller(limits=limits)
    shared = limiter(books)
    await admit(books, who, limits=shared)
    line = replace(who, background=True)
    for _ in range(2):
        await admit(books, line, limits=shared)
    assert (await refusal(books, line)).limit == 3
    await admit(books, who.counted_apart("models"), limits=shared)


async def test_without_the_ledger_the_operator_decides(books: Books, outage: FakeOutageDatabase) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_minute=2, requests_per_day=5))
    refusing = RateLimits(longer=LedgerCounters(outage))
    allowing = RateLimits(longer=LedgerCounters(outage), on_outage="allow")
    before = await refusing.admit(who, tokens_bound=1, now=books.now)
    outage.is_down = True
    with pytest.raises(LimitsUnavailable):
        await refusing.admit(who, tokens_bound=1, now=books.now)
    await before.done(1)
    for _ in range(2):
        await allowing.admit(who, tokens_bound=1, now=books.now)
    with pytest.raises(RateLimited, match="2 requests a minute"):
        await allowing.admit(who, tokens_bound=1, now=books.now)
    outage.is_down = False
    # What was refused meanwhile is counted nowhere.
    await refusing.admit(who, tokens_bound=1, now=books.now)
    assert (await left(books, who))["requests_per_day"] == 3


async def test_a_request_that_leaves_while_it_is_counted_leaves_nothing_counted(books: Books) -> None:
    who = await books.new_caller(limits=ProjectLimits(requests_per_day=5, tokens_per_hour=100))
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(LedgerCounters):
        async def _taken(self, ask: Ask) -> Answer:
            answer = await super()._taken(ask)
            asked.set()
            await go.wait()
            return answer

    counters = Slow(books.database)
    leaving = asyncio.create_task(RateLimits(longer=counters).admit(who, tokens_bound=9, now=books.now))
    await asked.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert await left(books, who) == {"requests_per_day": 4, "tokens_per_hour": 91}
    go.set()
    await counters.close()
    assert await left(books, who) == {"requests_per_day": 5, "tokens_per_hour": 100}


async def each_left(books: Books, who: Caller) -> dict[str, int]:
    """Requests of a day, by whose limit it is."""
    return {scope: (await left(books, one))["requests_per_day"] for scope, one in counted_for(who).items()}


async def test_persons_tags_and_the_workspace_have_days_of_their_own(books: Books) -> None:
    """Over two servers, whose requests come at once: exactly the limit, and what one refuses is counted nowhere."""
    day, longest = ProjectLimits(requests_per_day=9), "t" * 32
    plain = await books.new_caller(limits=day)
    of_labels = {EACH_PERSON: day, longest: replace(day, requests_per_day=12)}
    who = replace(plain, tags=(longest,), label_limits=of_labels, workspace_limits=day)
    alice, bob = (replace(who, person=f"psn_{letter * 16}") for letter in "ab")
    narrow = replace(alice, label_limits=of_labels | {EACH_PERSON: replace(day, requests_per_day=4)})
    servers = [limiter(books) for _ in range(2)]
    asked = [admit(books, narrow, limits=server) for server in servers for _ in range(6)]
    told = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in told if isinstance(one, RateLimited)]
    assert len(refused) == 8 and {one.scope for one in refused} == {"person"}
    assert await each_left(books, alice) == {"person": 5, f"tag {longest}": 8, "project": 5, "workspace": 5}
    assert (await each_left(books, bob))["person"] == 9
    elsewhere = replace(alice, project_id="prj_of_the_same_workspace")
    assert await each_left(books, elsewhere) == {
        "person": 9,
        f"tag {longest}": 12,
        "project": 9,
        "workspace": 5,
    }
    # Lines of batches count too.
    await admit(books, replace(bob, background=True))
    assert (await each_left(books, bob))["person"] == 8


async def test_counts_of_windows_that_are_long_over_are_deleted(books: Books) -> None:
    one = await books.new_caller(limits=ProjectLimits(requests_per_day=2))
    another = await books.new_caller(limits=ProjectLimits(requests_per_day=2))
    await admit(books, one)
    await books.at(books.now + timedelta(days=2, seconds=KEPT_S))
    await admit(books, another)
    assert await books.database.write(forget_old) == 1
    assert await books.database.write(forget_old) == 0
    assert await left(books, another) == {"requests_per_day": 1}
    assert await left(books, one) == {"requests_per_day": 2}
