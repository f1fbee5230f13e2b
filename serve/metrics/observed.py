"""What is counted of one request of any kind: how it ended, how long it took, and what it was charged."""

from time import perf_counter
from typing import Self

from prometheus_client import Counter, Histogram

from billing.price import Cost
from billing.usage import MeteringStatus
from models.engine import TokenUsage
from serve.metrics.money import MoneyMetrics
from serve.metrics.outcome import OUTCOMES, Outcome, outcome_of


class ModelEnds:
    """One model's series of how its requests ended, `duration` of the completed ones; all are there from the start."""

    def __init__(self, requests: Counter, duration: Histogram, money: MoneyMetrics, model_id: str) -> None:
        self.outcomes: dict[Outcome, Counter] = {
            outcome: requests.labels(model_id, outcome) for outcome in OUTCOMES
        }
        self.duration = duration.labels(model_id)
        self.money = money.of(model_id)


class ObservedRequest:
    """One request that has begun. Its failure and its end are reported on every way out: `with` does both."""

    def __init__(self, model: ModelEnds) -> None:
        self.began = perf_counter()
        self._ends = model
        self._outcome: Outcome = "completed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        self._ends.money.settle(cost, status)

    def lose(self) -> None:
        """What was used is in neither the ledger nor the spool."""
        self._ends.money.lose()

    def fail(self, error: BaseException) -> None:
        self._outcome = outcome_of(error)
        self._ends.money.refuse(error)

    def end(self) -> None:
        self._ends.outcomes[self._outcome].inc()
        if self._outcome == "completed":
            self._ends.duration.observe(perf_counter() - self.began)
