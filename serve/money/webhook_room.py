"""A server's webhooks: what it watches and delivers in the background, and how an operator manages them."""

from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from billing.background.upkeep import Round
from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.store.database import Database
from billing.webhooks.dispatcher import Dispatcher
from billing.webhooks.limit_alerts import LimitWatch, Refusals, RefusedLimit, tidy
from billing.webhooks.secret import SecretBox
from billing.webhooks.sender import AllowedAddresses, HttpSender
from serve.config.settings import Settings
from serve.config.values import parse_networks
from serve.metrics.background import WebhookMetrics
from serve.money.pepper import read_pepper

# How soon an event is on its way, where nothing is being sent.
DELIVER_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class WebhookRoom:
    """What a process does for webhooks. `close` it before the database."""

    watch: LimitWatch
    dispatcher: Dispatcher
    database: Database
    metrics: WebhookMetrics
    upkeep_s: float

    def rounds(self) -> list[Round]:
        """To be run beside the requests of the process."""
        return [
            Round("limits", self.watch.once, self.upkeep_s),
            Round("webhooks", self.dispatcher.once, DELIVER_EVERY_S, stuck_s=None),
            Round("old_webhooks", partial(tidy, self.database, self.metrics.show_waiting), self.upkeep_s),
        ]

    async def close(self) -> None:
        await self.dispatcher.close()


def open_webhooks(
    settings: Settings, database: Database, refusals: Refusals, metrics: WebhookMetrics | None = None
) -> WebhookRoom:
    """The webhooks of one process, as the configuration says. `metrics`: what counts them; tests read theirs."""
    metrics = metrics or WebhookMetrics(CollectorRegistry())
    asked = settings.webhooks
    sender = HttpSender(
        allowed=AllowedAddresses(parse_networks(asked.allowed_networks)),
        allow_http=asked.allow_http,
        timeout_s=asked.timeout_s,
    )
    box = SecretBox(read_pepper(settings.state_dir))
    dispatcher = Dispatcher(database, box, sender, count=metrics.count)
    watch = LimitWatch(database, refusals)
    return WebhookRoom(watch, dispatcher, database, metrics, settings.billing.upkeep_s)


def refused_limit(caller: Caller, refusal: QuotaExceeded) -> RefusedLimit:
    """Which limit had no room for a request of this caller's."""
    key_id = caller.key_id if refusal.whose == "key" else ""
    return RefusedLimit(caller.workspace_id, key_id, refusal.span, refusal.limit_nano_usd)
