"""Opens the rate limits of one process, counted where its settings say."""

from pathlib import Path

from billing.rate_limits.rate_limits import RateLimits, open_counters
from serve.config.billing import IN_MEMORY
from serve.config.settings import Settings
from serve.processes.rate_limits.client import SharedCounters


def open_limiter(settings: Settings, socket: Path | None = None) -> RateLimits:
    """The rate limits, counted where the settings say: `memory://` at the coordinator's socket, if any."""
    storage = settings.billing.rate_limit_storage
    counters = SharedCounters(socket) if socket and storage == IN_MEMORY else open_counters(storage)
    return RateLimits(counters, on_outage=settings.billing.rate_limit_outage)
