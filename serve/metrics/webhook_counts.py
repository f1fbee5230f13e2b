"""What becomes of webhooks: tries by what they came to, and how many deliveries wait."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from billing.webhooks.delivery import RESULTS, Result


class WebhookMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        tries = Counter(
            "pith_webhook_deliveries",
            "Tries to deliver an event to a webhook, by what they came to.",
            ["result"],
            registry=registry,
        )
        self._tries = {result: tries.labels(result) for result in RESULTS}
        # Each process counts the same rows.
        self._waiting = Gauge(
            "pith_webhook_deliveries_waiting",
            "Deliveries to webhooks that are not done, first and later tries.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._waiting.set(0)

    def count(self, result: Result) -> None:
        self._tries[result].inc()

    def show_waiting(self, number: int) -> None:
        self._waiting.set(number)
