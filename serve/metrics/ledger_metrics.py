"""Metrics of the ledger, read in the background when somebody scrapes: no scrape waits long for the database."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from billing.books.usage_report import Glance, UsageSum, glance, month_of_tenants, total
from billing.errors import BillingError
from billing.store.database import Work, open_database
from billing.transparency.log_sql import Status, time_of
from billing.transparency.log_sql import status as log_status
from serve.metrics.families import NANO_PER_USD, collected_gauge

OTHER = "other"


def glance_families(found: Glance) -> Sequence[Metric]:
    batches = collected_gauge("pith_batches")
    for status, number in found.batches.items():
        batches.add_metric([status], number)
    lines = collected_gauge("pith_batch_lines")
    for state, number in found.lines.items():
        lines.add_metric([state], number)
    spent = collected_gauge("pith_workspaces_spent")
    for percent, number in found.spent.items():
        spent.add_metric([str(percent)], number)
    return [batches, lines, collected_gauge("pith_workspaces_limited", found.limited), spent]


def log_families(found: Status, now_s: float) -> Sequence[Metric]:
    began = None if found.oldest_id is None else time_of(found.oldest_id)
    waited = 0.0 if began is None else max(0.0, now_s - began)
    return [
        collected_gauge("pith_log_leaves", found.size),
        collected_gauge("pith_log_pending", found.pending),
        collected_gauge("pith_log_oldest_pending_seconds", waited),
    ]


def tenant_families(named: Mapping[str, UsageSum], others: UsageSum) -> Sequence[Metric]:
    """A customer that is called `other` is shown with the others."""
    named = dict(named)
    if OTHER in named:
        others = total([named.pop(OTHER), others])
    requests = collected_gauge("pith_tenant_month_requests")
    tokens = collected_gauge("pith_tenant_month_tokens")
    cost = collected_gauge("pith_tenant_month_usd")
    for name, line in {**named, OTHER: others}.items():
        requests.add_metric([name], line.requests)
        tokens.add_metric([name, "prompt"], line.prompt_tokens)
        tokens.add_metric([name, "completion"], line.completion_tokens)
        cost.add_metric([name], line.cost_nano_usd / NANO_PER_USD)
    return [requests, tokens, cost]


# The counts that a scrape shows are at most so old, and the sums of tenants, which take longer.
GLANCE_S, TENANTS_S = 15.0, 60.0
# What a scrape waits for what is being read; then it shows what was read before.
PATIENCE_S = 0.5
READ_S = 5.0
logger = logging.getLogger("pith.metrics")
T = TypeVar("T")
Read = Callable[[], Sequence[Metric]]


class LedgerMetrics(Collector):
    """`tenants`: of so many workspaces usage is shown by name; 0: of none."""

    def __init__(
        self, database_url: str, *, tenants: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readings = [Reading(partial(read_glance, database_url), GLANCE_S, clock)]
        if tenants:
            self._readings.append(Reading(partial(read_tenants, database_url, tenants), TENANTS_S, clock))

    def collect(self) -> Iterable[Metric]:
        for reading in self._readings:
            reading.begin()
        found = [reading.found() for reading in self._readings]
        up = collected_gauge("pith_ledger_up", float(found[0] is not None))
        return [up, *(family for families in found for family in families or ())]


class Reading:
    """The last answer to one question to the ledger. It is asked by one thread at a time."""

    def __init__(self, read: Read, every_s: float, clock: Callable[[], float]) -> None:
        self._read = read
        self._every_s = every_s
        self._clock = clock
        self._asked_at = float("-inf")
        self._asking: threading.Thread | None = None
        self._found: Sequence[Metric] | None = None

    def begin(self) -> None:
        """Ask again, if the last answer is old."""
        if self._is_asking() or self._clock() - self._asked_at < self._every_s:
            return
        self._asked_at = self._clock()
        self._asking = threading.Thread(target=self._ask, daemon=True)
        self._asking.start()

    def found(self) -> Sequence[Metric] | None:
        """None: the ledger is away, or has not answered for long."""
        if self._asking is not None:
            self._asking.join(PATIENCE_S)
        is_late = self._is_asking() and self._clock() - self._asked_at > self._every_s
        return None if is_late else self._found

    def _is_asking(self) -> bool:
        return self._asking is not None and self._asking.is_alive()

    def _ask(self) -> None:
        try:
            self._found = self._read()
        except BillingError as error:
            self._found = None
            # Not for long: the next scrape asks again.
            self._asked_at = float("-inf")
            logger.warning("the ledger's metrics are missing: %s", error)


def read_glance(database_url: str) -> Sequence[Metric]:
    """Raises `BillingError`."""
    found, log = asyncio.run(_read(database_url, lambda c: (glance(c), log_status(c))))
    return [*glance_families(found), *log_families(log, time.time())]


def read_tenants(database_url: str, top: int) -> Sequence[Metric]:
    """Raises `BillingError`."""
    return tenant_families(*asyncio.run(_read(database_url, partial(month_of_tenants, top=top))))


async def _read(database_url: str, work: Work[T]) -> T:
    database = open_database(database_url, timeout_s=READ_S, pool_size=1)
    try:
        return await database.read(work)
    finally:
        await database.close()
