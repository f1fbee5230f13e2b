"""What was charged, whether it is on record, and which holds were refused, for chat and compression models alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter

from billing.errors import BillingDisabled, ClockBehind, InvalidKey, LedgerUnavailable, QuotaExceeded
from billing.price import Cost
from billing.usage import MeteringStatus
from serve.http.errors import STATUSES, problem_of

NANO_PER_USD = 10**9
# A usage event that is in neither the ledger nor the spool; every other status is the response's own.
LOST = "lost"
HOLD_REFUSALS = (QuotaExceeded, BillingDisabled, InvalidKey, LedgerUnavailable, ClockBehind)


class MoneyMetrics:
    """The counters of every model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.settled = Counter(
            "pith_metering",
            "Settlements by metering status; lost is in neither the ledger nor the spool.",
            ["model", "status"],
            registry=registry,
        )
        self.charged = Counter(
            "pith_charged_usd",
            "US dollars charged, those in the spool included.",
            ["model"],
            registry=registry,
        )
        self.refused = Counter(
            "pith_holds_refused",
            "Requests whose worst-case cost could not be held.",
            ["model", "reason"],
            registry=registry,
        )

    def of(self, model_id: str) -> ModelMoney:
        return ModelMoney(self, model_id)


class ModelMoney:
    """One model's part; all its series are there from the start, at 0."""

    def __init__(self, metrics: MoneyMetrics, model_id: str) -> None:
        statuses: Iterable[str] = (*get_args(MeteringStatus), LOST)
        self._settled = {status: metrics.settled.labels(model_id, status) for status in statuses}
        self._charged = metrics.charged.labels(model_id)
        reasons = [STATUSES[kind].code for kind in HOLD_REFUSALS]
        self._refused = {reason: metrics.refused.labels(model_id, reason) for reason in reasons}

    def settle(self, cost: Cost, status: MeteringStatus) -> None:
        self._settled[status].inc()
        if status != "not_applicable":
            self._charged.inc(cost.nano_usd / NANO_PER_USD)

    def lose(self) -> None:
        self._settled[LOST].inc()

    def refuse(self, error: BaseException) -> None:
        """Count a refused hold, where the error is one."""
        if isinstance(error, HOLD_REFUSALS):
            self._refused[problem_of(error).code].inc()
