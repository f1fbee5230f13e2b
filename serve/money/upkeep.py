"""A server's background work: replay of the spool, leases, the transparency log, collections, expired originals, old
checks, webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from billing.background.upkeep import (
    LEASES_EVERY_S,
    Background,
    Loop,
    Round,
    budgets_round,
    collection_round,
    lease_round,
    months_round,
    originals_round,
    preservation_round,
    replay_round,
)
from billing.collections.collection import HookCommand
from billing.collections.collector import Collector
from billing.ledger.leases import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.originals.original_store import OriginalStore
from billing.preservation.checks import PreservationStore
from billing.store.database import Database
from billing.store.migration import newest_revision
from billing.transparency.sequencer import Sequencer
from billing.transparency.witness import Witness
from billing.usage import now
from billing.webhooks.dispatcher import Dispatcher
from billing.webhooks.limit_alerts import LimitWatch, Refusals, tidy
from billing.webhooks.secret_box import SecretBox
from billing.webhooks.sender import AllowedAddresses, HttpSender
from serve.config.settings import Settings
from serve.config.values import parse_networks
from serve.metrics.background import UpkeepMetrics, WebhookMetrics
from serve.metrics.counts import Counts
from serve.money.ledger_setup import log_signer, read_pepper, witness_key
from serve.tracing.request_record import NO_TRACER, Tracer, traced

# Promises are kept within a minute: that leaves time for a server that dies meanwhile.
SEQUENCE_EVERY_S = 5.0
# Of so many rounds that `pith serve` begins meanwhile, one moves the head if anything waits.
ROUNDS_MISSED = 3


def begin_upkeep(
    settings: Settings,
    database: Database,
    ledger: Ledger,
    lease: LeaseTimes,
    metrics: UpkeepMetrics,
    others: Sequence[Round] = (),
    tracer: Tracer = NO_TRACER,
) -> Background:
    """All of it, and the rounds of `others`, until `Background.stop`. A round is a trace of its own, unless it may take
    any time."""
    rounds = [
        replay_round(ledger, every_s=settings.billing.upkeep_s),
        lease_round(ledger, every_s=min(LEASES_EVERY_S, lease.renew_every_s)),
        collecting_round(settings, database),
        months_round(database),
        budgets_round(database),
        standby_round(settings, database),
        *witness_rounds(settings, database),
        preservation_round(PreservationStore(database), clock=now),
        originals_round(
            OriginalStore(database), every_s=settings.billing.upkeep_s, count=metrics.delete_originals
        ),
        *others,
    ]
    background = Background([Loop(_traced(of, tracer), observe=metrics.observe) for of in rounds])
    background.start()
    return background


def _traced(of: Round, tracer: Tracer) -> Round:
    if of.stuck_s is None:
        return of

    async def once() -> object:
        with traced(tracer, f"upkeep {of.name}"):
            return await of.once()

    return replace(of, once=once)


def witness_rounds(settings: Settings, database: Database) -> list[Round]:
    """Have the log's checkpoints cosigned, where somebody does. A round of its own: the log waits for nobody."""
    asked, key = settings.log.witness, witness_key(settings)
    if asked is None or key is None:
        return []
    return [Round("witness", Witness(database, key, asked.url).once, SEQUENCE_EVERY_S)]


def log_sequencer(settings: Settings, database: Database) -> Sequencer:
    """Puts what waits for the transparency log into its tree."""
    return Sequencer(database, log_signer(settings), revision=newest_revision(), clock=now)


def standby_round(settings: Settings, database: Database) -> Round:
    """Does the work of `pith serve`'s sequencer where none is: it was killed, hangs, or has left a cluster."""
    once = log_sequencer(settings, database).once_if_alone
    return Round("log", once, ROUNDS_MISSED * sequence_every_s(settings))


def sequence_every_s(settings: Settings) -> float:
    return min(SEQUENCE_EVERY_S, settings.billing.upkeep_s)


def collecting_round(settings: Settings, database: Database) -> Round:
    """Cut and hand over collections, as the configuration says."""
    billing = settings.billing
    argv, timeout_s = billing.collection_hook, billing.collection_hook_timeout_s
    return collection_round(
        Collector(database, actor="upkeep"),
        threshold_cents=billing.collection_threshold_cents,
        hook=HookCommand(argv, timeout_s) if argv else None,
        every_s=billing.upkeep_s,
        clock=lambda: datetime.now(UTC),
    )


# How soon an event is on its way, where nothing is being sent.
DELIVER_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class WebhookRoom:
    """A process's work for webhooks. `close` it before the database."""

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
    metrics = metrics or WebhookMetrics(Counts())
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
