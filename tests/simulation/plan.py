"""What happens in one schedule, drawn from its seed: servers, workspaces, requests, and everything that goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from billing.ledger.budget_settings import SCOPES, BudgetScope
from billing.periods import PERIODS, PeriodKind

# One token costs as much as this, so that a few requests come to a cent.
TOKEN_NANO_USD = 1_000_000
MOST_TOKENS = 20
Shape = Literal["completes", "client leaves", "engine fails early", "engine fails late"]
SHAPES: tuple[Shape, ...] = ("completes", "client leaves", "engine fails early", "engine fails late")


@dataclass(frozen=True, slots=True)
class PartPlan:
    """`tokens` of 0: nothing was compressed in the end, and nothing is charged."""

    takes_s: float
    most_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """`leaves_at_step` counts the loop's steps, so that a client may leave between any two of them."""

    number: int
    server: int
    workspace: int
    starts_at_s: float
    takes_s: float
    most_tokens: int
    tokens: int
    shape: Shape
    leaves_after_s: float
    # The compression of its prompt, held before it; None: its prompt is sent as it is.
    part: PartPlan | None = None
    # Whom and what it names.
    person: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def ends_at_s(self) -> float:
        """Where nothing delays it."""
        return self.starts_at_s + self.longest_s

    @property
    def longest_s(self) -> float:
        return self.takes_s + (self.part.takes_s if self.part else 0.0)


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """`budgets` are (whose, by which period, limit)."""

    spend_limit_nano_usd: int | None
    monthly_limit_nano_usd: int | None
    time_zone: str = "UTC"
    budgets: tuple[tuple[BudgetScope, PeriodKind, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """`clock_jumps` are (when, by how much); `pauses` and `outages` are (from, until)."""

    clock_off_by: timedelta
    clock_jumps: tuple[tuple[float, timedelta], ...]
    pauses: tuple[tuple[float, float], ...]
    outages: tuple[tuple[float, float], ...]
    spool_outages: tuple[tuple[float, float], ...]
    fault_rate: float
    spool_fault_rate: float
    crashes_at_steps: tuple[int, ...]
    # Told to stop: requests get a moment to end, and what it knows is written down.
    stops_at_s: float | None
    back_after_s: float
    collects: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`calm_from_s`: from then on nothing goes wrong any more, and all must come to rest."""

    seed: int
    began_at: datetime
    servers: tuple[ServerPlan, ...]
    workspaces: tuple[WorkspacePlan, ...]
    requests: tuple[RequestPlan, ...]
    # All servers on one machine, with one spool, or each on its own.
    one_spool: bool
    allowance_nano_usd: int
    upkeep_s: float
    leases_s: float
    database_jumps: tuple[tuple[float, timedelta], ...]
    cancels_at_steps: tuple[int, ...]
    calm_from_s: float


@dataclass(frozen=True, slots=True)
class Mood:
    """What a schedule is full of, since all kinds of trouble at once hide one another. Choices are drawn from."""

    servers: tuple[int, ...] = (1, 2, 2, 3)
    workspaces: tuple[int, ...] = (1, 1, 2)
    requests: tuple[int, ...] = (1, 2, 3, 4, 5)
    load_s: tuple[float, ...] = (1.0, 10.0, 10.0, 40.0)
    # Shares: of long requests, of clocks that jump, of servers with troubled links, of workspaces with limits.
    slow: float = 0.05
    jumps: float = 0.2
    rough: float = 0.6
    limited: float = 0.6
    # In tokens.
    allowances: tuple[int, ...] = (0, 0, 15, 40)
    # Whether the ledger is away from early on.
    is_offline: bool = False
    # Of requests whose prompt is compressed.
    with_part: float = 0.35


MIXED = Mood()
# Long requests, whose holds must live on whatever the clocks say.
LONG = Mood(servers=(2, 3), requests=(2, 3), load_s=(10.0,), slow=0.9, jumps=0.7, rough=0.15, limited=0.2)
# Everybody at once, against limits that do not pay for all of them.
CROWD = Mood(
    servers=(1, 2), workspaces=(1,), requests=(5, 6, 7), load_s=(0.2, 2.0), slow=0.02, limited=0.9, jumps=0.1
)
# On the allowance, again and again.
OFFLINE = Mood(
    servers=(1, 1, 2),
    workspaces=(1,),
    requests=(4, 5, 6),
    load_s=(2.0, 10.0),
    allowances=(20, 30),
    is_offline=True,
)
MOODS = (MIXED, MIXED, MIXED, LONG, CROWD, OFFLINE)


def draw(seed: int) -> Plan:
    rng = random.Random(seed)
    mood = rng.choice(MOODS)
    servers, workspaces, load_s = (
        rng.choice(mood.servers),
        rng.choice(mood.workspaces),
        rng.choice(mood.load_s),
    )
    parts, budgets = random.Random(f"parts of {seed}"), random.Random(f"budgets of {seed}")
    labels = random.Random(f"labels of {seed}")
    requests = tuple(
        replace(
            _request(rng, number, servers, workspaces, load_s, mood),
            part=_part(parts, mood),
            **_named(labels),
        )
        for number in range(1, rng.choice(mood.requests) + 1)
    )
    ends_at_s = max(request.ends_at_s for request in requests)
    horizon_s = max(5.0, min(ends_at_s, 120.0))
    return Plan(
        seed=seed,
        began_at=_began_at(rng),
        # With one workspace alone: the order of two collections of one moment is their random ids'.
        servers=tuple(
            _server(rng, horizon_s, mood, collects=workspaces == 1 and rng.random() < 0.15)
            for _ in range(servers)
        ),
        workspaces=tuple(_with_budgets(budgets, _workspace(rng, mood)) for _ in range(workspaces)),
        requests=requests,
        one_spool=rng.random() < 0.4,
        allowance_nano_usd=rng.choice(mood.allowances) * TOKEN_NANO_USD,
        upkeep_s=rng.choice((5.0, 15.0, 30.0)),
        leases_s=rng.choice((1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0)),
        database_jumps=_jumps(rng, horizon_s, mood),
        cancels_at_steps=tuple(_step(rng) for _ in range(rng.choice((0, 0, 1, 2)))),
        calm_from_s=horizon_s + 1.0,
    )


def _request(
    rng: random.Random, number: int, servers: int, workspaces: int, load_s: float, mood: Mood
) -> RequestPlan:
    most = rng.randint(1, MOST_TOKENS)
    quick_s = rng.choice((0.0, 0.05, 1.0, 5.0)) * rng.random()
    takes_s = rng.uniform(30, 120) if rng.random() < mood.slow else quick_s
    return RequestPlan(
        number=number,
        server=rng.randrange(servers),
        workspace=rng.randrange(workspaces),
        starts_at_s=rng.random() * load_s,
        takes_s=takes_s,
        most_tokens=most,
        # Often the whole of it: then what was held is what is charged.
        tokens=most if rng.random() < 0.6 else rng.randint(0, most),
        shape=rng.choice((SHAPES[0], SHAPES[0], *SHAPES)),
        leaves_after_s=rng.random() * (takes_s + 0.1),
    )


def _part(rng: random.Random, mood: Mood) -> PartPlan | None:
    if rng.random() >= mood.with_part:
        return None
    most = rng.randint(1, MOST_TOKENS)
    return PartPlan(
        # Some take so long that the lease of the one hold ends before the other's.
        takes_s=rng.uniform(5, 50)
        if rng.random() < mood.slow
        else rng.choice((0.0, 0.05, 1.0)) * rng.random(),
        most_tokens=most,
        tokens=most if rng.random() < 0.6 else rng.randint(0, most),
    )


PERSONS = ("psn_0000000000000001", "psn_0000000000000002")
# Budgets of tags are of the first.
TAGS = ("research", "nightly")


def _named(rng: random.Random) -> dict[str, Any]:
    return {
        "person": rng.choice((None, *PERSONS, *PERSONS)),
        "tags": rng.choice(((), TAGS[:1], TAGS[:1], TAGS[1:], tuple(sorted(TAGS)))),
    }


def _workspace(rng: random.Random, mood: Mood) -> WorkspacePlan:
    def limit() -> int | None:
        return rng.randint(5, 60) * TOKEN_NANO_USD if rng.random() < mood.limited else None

    return WorkspacePlan(spend_limit_nano_usd=limit(), monthly_limit_nano_usd=limit())


# In one of them the hour ends with the month in UTC, in the others half or a quarter of an hour from it.
ZONES = ("UTC", "Asia/Kolkata", "Asia/Kathmandu")


def _with_budgets(rng: random.Random, plan: WorkspacePlan) -> WorkspacePlan:
    """Half of them have some."""
    if rng.random() < 0.5:
        return plan
    kinds = rng.sample([(scope, period) for scope in SCOPES for period in PERIODS], rng.choice((1, 1, 2, 3)))
    drawn = tuple((*kind, rng.randint(5, 60) * TOKEN_NANO_USD) for kind in kinds)
    return replace(plan, time_zone=rng.choice(ZONES), budgets=drawn)


def _server(rng: random.Random, horizon_s: float, mood: Mood, *, collects: bool) -> ServerPlan:
    is_rough = rng.random() < mood.rough

    def spans(most: int, longest_s: float) -> tuple[tuple[float, float], ...]:
        count = rng.choice((0, 0, 1, most)) if is_rough else 0
        begins = sorted(rng.random() * horizon_s for _ in range(count))
        return tuple((begin, begin + rng.random() * longest_s) for begin in begins)

    return ServerPlan(
        clock_off_by=_skew(rng) if rng.random() < 0.2 else timedelta(0),
        clock_jumps=_jumps(rng, horizon_s, mood),
        pauses=spans(1, 100.0),
        outages=((rng.random(), rng.uniform(5, 40)),) if mood.is_offline else spans(2, 90.0),
        spool_outages=spans(0, 20.0),
        fault_rate=rng.choice((0.02, 0.1, 0.3)) if is_rough else 0.0,
        spool_fault_rate=rng.choice((0.0, 0.0, 0.1)) if is_rough else 0.0,
        crashes_at_steps=tuple(_step(rng) for _ in range(rng.choice((0, 0, 1, 2)) if is_rough else 0)),
        stops_at_s=rng.random() * horizon_s if rng.random() < 0.15 else None,
        back_after_s=rng.choice((0.1, 5.0, 90.0)),
        collects=collects,
    )


def _step(rng: random.Random) -> int:
    """Early ones are likelier: a short schedule has few."""
    return int(10 ** rng.uniform(0.3, 2.9))


def _skew(rng: random.Random) -> timedelta:
    return timedelta(seconds=rng.choice((-1, 1)) * rng.choice((90, 3600, 31 * 86400)))


def _jumps(rng: random.Random, horizon_s: float, mood: Mood) -> tuple[tuple[float, timedelta], ...]:
    count = rng.choice((1, 2)) if rng.random() < mood.jumps else 0
    return tuple((rng.random() * horizon_s, _skew(rng)) for _ in range(count))


def _began_at(rng: random.Random) -> datetime:
    """Some schedules see a month end."""
    if rng.random() < 0.3:
        return datetime(2026, 12, 1, tzinfo=UTC) - timedelta(seconds=rng.random() * 60)
    return datetime(2026, 11, 15, 12, tzinfo=UTC)
