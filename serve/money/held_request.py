"""One request whose worst case is held: the most that it can use, what it used, and the one settlement or release."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from billing.caller import Caller
from billing.errors import BillingError, UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.price import Cost, ModelPrice, cost, worst_case
from billing.store.database import Work
from billing.transparency.leaves import digest
from billing.transparency.notes import Signer
from billing.usage import Hold, MeteringStatus, Outcome, Saving, Settlement, UsageFigures, Used
from models.engine import TokenUsage
from serve.http.replies import Client
from serve.tracing.request_record import ChargedWork, step


@dataclass(frozen=True, slots=True)
class MostTokens:
    """No outcome of a request has more tokens of either kind; `completion` is over all of its choices."""

    prompt: int
    completion: int

    def covers(self, usage: TokenUsage) -> bool:
        """No hold covers less than nothing either: no price is defined for it."""
        return 0 <= usage.prompt_tokens <= self.prompt and 0 <= usage.completion_tokens <= self.completion


@dataclass(slots=True)
class TokenTerms:
    """The tokens that a request can ask of its model.

    `bound` costs nothing to know; `least` is what the request asks for however short its prompt is; `count` has the
    prompt counted as the engine would feed it. Unless `bound_is_proven`, nothing is held before that.
    `counts_against_limits` is false for what the limits count elsewhere;
    `limits_completion` says whether generated tokens count against the project's limit, as read ones do.
    `enough` are the generated tokens that do for a caller who gave no limit, where more cannot be had; None: all or
    nothing.
    """

    model_id: str
    bound: MostTokens
    least: MostTokens
    count: Callable[[], Awaitable[MostTokens]]
    bound_is_proven: bool = True
    limits_completion: bool = True
    counts_against_limits: bool = True
    enough: int | None = None
    is_shrunk: bool = field(default=False, init=False)
    _counted: MostTokens | None = field(default=None, init=False)

    async def counted(self) -> MostTokens:
        """The exact worst case, counted once however often it is asked for. Raises what `count` raises."""
        if self._counted is None:
            self._counted = await self.count()
        return self._within(self._counted)

    @property
    def best_known(self) -> MostTokens:
        """Without asking anybody."""
        return self._within(self._counted or self.bound)

    def shrink(self) -> None:
        """Ask for no more generated tokens than are enough, where that is known."""
        self.is_shrunk = self.enough is not None

    def _within(self, most: MostTokens) -> MostTokens:
        if not self.is_shrunk or self.enough is None:
            return most
        return MostTokens(most.prompt, min(most.completion, self.enough))

    def limited(self, most: MostTokens) -> int:
        """The number of these tokens that count against the project's limit."""
        if not self.counts_against_limits:
            return 0
        return most.prompt + most.completion if self.limits_completion else most.prompt


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """The caller who is to pay, the request and its price, and the most tokens that it can use."""

    caller: Caller
    price: ModelPrice
    pricing_version: int
    request_id: str
    tokens: TokenTerms
    # What was asked, as the usage event has it.
    route: str | None = None
    may_land: bool = False

    def amount_nano_usd(self, most: MostTokens) -> int:
        """The most that the request can cost with that many tokens."""
        worst = worst_case(self.price, prompt_tokens_bound=most.prompt, max_tokens=most.completion)
        return worst.nano_usd


async def open_hold(
    ledger: Ledger, terms: HoldTerms, most: MostTokens, *, clock: Callable[[], datetime]
) -> Hold:
    """Hold what that many tokens cost. Raises what `Ledger.hold` raises."""
    return await ledger.hold(
        terms.caller,
        model_id=terms.price.model_id,
        pricing_version=terms.pricing_version,
        amount_nano_usd=terms.amount_nano_usd(most),
        request_id=terms.request_id,
        now=clock(),
        route=terms.route,
        may_land=terms.may_land,
    )


# What is written with a settlement, of the receipt that it will have.
AlsoWrite = Callable[["Receipt"], Work[None]]


logger = logging.getLogger("pith.money")


class MoreThanHeld(Exception):
    """The model counted more tokens than were held for it. That is its fault: they are not charged."""


class ChargedPrompt:
    """The compression of a request's prompt: what it saved, and a part for what it costs; here neither."""

    def saving_of(self, usage: TokenUsage, charged: Cost, minimum: bool) -> Saving | None:
        """By the request's usage, its cost and whether a minimum was asked; None if that is not asked."""
        return None

    def begin_settlement(self) -> "HeldRequest | None":
        """The part that is settled with the request, in one transaction; None if nothing is to be paid. Asked after
        `saving_of`."""
        return None

    def end_settlement(self, *, is_paid: bool) -> None:
        """On every way out of a settlement that has begun. Paid is what is in the ledger or in the spool."""

    def observe(self, saving: Saving, usage: TokenUsage, status: MeteringStatus) -> None:
        """Count what was settled."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A leaf's `record`, as it is hashed, and the signed note that it will be in the log."""

    record: str
    note: str


@dataclass(frozen=True, slots=True)
class Ending:
    """A settlement that begins: of a request, and of the part that is settled with it."""

    outcome: Outcome
    now: datetime
    held: "Sequence[HeldRequest]"
    used: Sequence[Used]
    promises: Sequence[Promise | None]

    def note_receipts(self, settlements: Sequence[Settlement]) -> None:
        """Give each of them its receipt."""
        rows = zip(self.held, self.used, settlements, self.promises, strict=True)
        for one, what, settlement, promise in rows:
            one.receipt = Receipt(one.usage, one.terms.price, what.cost, settlement, promise)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One request's usage and cost, and whether they are on record; with a promise that they will be in the log, where
    the project asks for it."""

    usage: TokenUsage
    price: ModelPrice
    cost: Cost
    settlement: Settlement
    promise: Promise | None = None


@dataclass(slots=True, eq=False)
class HeldRequest:
    """Tell it what was used, then `settle`: chat, compression and whatever else is paid for by its tokens.

    It is made by `serve.money.admission.Admitted.hold`, which closes it however the work ends. `client` tells a client
    that leaves from a server that stops.
    """

    hold: Hold
    most: MostTokens
    terms: HoldTerms
    stream: bool
    client: Client
    ledger: Ledger
    observed: ChargedWork
    clock: Callable[[], datetime]
    # Of another request, with which it is settled: by itself it is never owed.
    is_part: bool = False
    # If the prompt is compressed.
    prompt: ChargedPrompt | None = None
    signer: Signer | None = None
    # Of the tokens in `usage`, as the engine says.
    tokens_sha256: str | None = field(default=None, init=False)
    usage: TokenUsage = field(default=TokenUsage(), init=False)
    # Set before the first byte of the reply leaves: what was delivered is paid for, even when the rest fails.
    delivered: bool = field(default=False, init=False)
    # What was written of it, once it was settled.
    receipt: Receipt | None = field(default=None, init=False)
    _settling: asyncio.Task[Receipt | BillingError] | None = field(default=None, init=False)
    _released: bool = field(default=False, init=False)
    # Of a part: its settlement is that of the whole.
    _is_settled_with_whole: bool = field(default=False, init=False)

    @property
    def is_settled(self) -> bool:
        """True once a settlement has begun; it goes on to its end by itself."""
        return self._settling is not None or self._is_settled_with_whole

    @property
    def limited_tokens(self) -> int:
        """The tokens that count against the project's limit: none of a request that failed by our fault and was given
        back."""
        used = MostTokens(self.usage.prompt_tokens, self.usage.completion_tokens)
        return 0 if self._released else self.terms.tokens.limited(used)

    def use(self, usage: TokenUsage, tokens_sha256: str | None = None) -> None:
        """The usage so far, with the hash of its tokens: what was held is all that this request can ever be charged.
        Raises `MoreThanHeld`."""
        if self.hold.kind != "not_applicable" and not self.most.covers(usage):
            model_id = self.terms.tokens.model_id
            logger.critical("%s: usage %r exceeds the hold %r", model_id, usage, self.most)
            raise MoreThanHeld(f"{model_id}: it counted more tokens than its stated maximum")
        self.usage, self.tokens_sha256 = usage, tokens_sha256

    async def settle(
        self, outcome: Outcome, *, receipt: str | None = None, also_write: AlsoWrite | None = None
    ) -> Receipt:
        """Write what was used, once, and to the end even if the caller is cancelled.

        `receipt` is the usage log's, as JSON. What `also_write` gives is written in the same transaction, which then
        never goes to the spool: both are there, or neither is. Raises `UsageNotRecorded`; with `also_write`, what that
        raises, before anything was written, and what `Ledger.settle_all` raises.
        """
        if self._settling is None:
            used = [self._used(outcome, receipt)]
            held = [self, *self._used_parts()]
            used += [part._used(outcome, None) for part in held[1:]]
            now = self.clock()
            ending = Ending(outcome, now, held, used, self._promises(used, outcome, now))
            also = None if also_write is None else self._also(ending, also_write)
            self._settling = asyncio.create_task(self._write(ending, also))
        written = await asyncio.shield(self._settling)
        if isinstance(written, BillingError):
            raise written
        return written

    def _used_parts(self) -> "list[HeldRequest]":
        part = None if self.prompt is None else self.prompt.begin_settlement()
        if part is None:
            return []
        part._is_settled_with_whole = True
        return [part]

    def _used(self, outcome: Outcome, receipt: str | None) -> Used:
        prompt, completion = self.usage.prompt_tokens, self.usage.completion_tokens
        cached = min(self.usage.cached_tokens, prompt)
        # A failure is our fault: what was delivered is paid for, and no minimum is asked.
        minimum = outcome != "failed"
        charged = cost(
            self.terms.price,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            minimum=minimum,
        )
        saving = self.prompt.saving_of(self.usage, charged, minimum) if self.prompt else None
        figures = UsageFigures(prompt, completion, cached, self.stream, receipt, saving, self.tokens_sha256)
        return Used(self.hold, figures, charged, self.terms.price.ppm)

    def _promises(self, used: Sequence[Used], outcome: Outcome, now: datetime) -> Sequence[Promise | None]:
        if self.signer is None or not self.terms.caller.proof or self.hold.kind == "not_applicable":
            return [None] * len(used)
        records = self.ledger.records(used, outcome=outcome, now=now)
        return [Promise(record, self.signer.receipt(digest(record))) for record in records]

    async def _write(self, ending: Ending, also: Work[None] | None) -> Receipt | BillingError:
        """A loss is returned rather than raised: after a client left, nobody awaits this task to see its exception."""
        is_paid = False
        try:
            with step("settle"):
                settlements = await self.ledger.settle_all(
                    ending.used, outcome=ending.outcome, now=ending.now, also=also
                )
            is_paid = True
        except BillingError as lost:
            # With `also_write` it is not lost: neither was written, and nothing is owed.
            for one in ending.held:
                one.receipt = None
                if isinstance(lost, UsageNotRecorded):
                    one.observed.lose()
            return lost
        finally:
            self._end_settlement(is_paid=is_paid)
        ending.note_receipts(settlements)
        for one, what, settlement in zip(ending.held, ending.used, settlements, strict=True):
            one.observed.settle(one.usage, what.cost, settlement.status)
        assert self.receipt is not None
        self._observe_saving(ending.used)
        return self.receipt

    def _end_settlement(self, *, is_paid: bool) -> None:
        if self.prompt is not None:
            self.prompt.end_settlement(is_paid=is_paid)

    def _also(self, ending: Ending, also_write: AlsoWrite) -> Work[None]:
        """The writes for the receipts that there will be if all is written. What it raises leaves all as it was, to be
        released."""
        status: MeteringStatus = "not_applicable" if self.hold.kind == "not_applicable" else "persisted"
        ending.note_receipts([Settlement(one.hold.event_id, status) for one in ending.held])
        assert self.receipt is not None
        try:
            return also_write(self.receipt)
        except BaseException:
            for one in ending.held:
                one.receipt, one._is_settled_with_whole = None, False
            self._end_settlement(is_paid=False)
            raise

    def _observe_saving(self, used: Sequence[Used]) -> None:
        saving = used[0].figures.saving
        if saving is not None and self.prompt is not None and self.receipt is not None:
            spent = sum(part.cost.nano_usd for part in used[1:])
            status = self.receipt.settlement.status
            self.prompt.observe(replace(saving, compression_nano_usd=spent), self.usage, status)

    async def close(self, failure: BaseException) -> None:
        """Settle what was done before `failure`, or release the hold if nothing is owed."""
        if self.is_settled:
            # It finishes on its own, and no one waits for its result any more.
            return
        is_our_fault = isinstance(failure, Exception) or not self.client.gone
        if not self.is_part and self._is_owed(is_our_fault):
            await self.settle("failed" if is_our_fault else "disconnected")
        else:
            await self.release()

    async def release(self) -> None:
        """Nothing is owed: give the hold back, once."""
        if self._released:
            return
        self._released = True
        # The ledger's write goes on to its end when this is cancelled.
        with step("release"):
            await self.ledger.release(self.hold, now=self.clock())

    async def hold_less(self, most: MostTokens) -> None:
        """Hold no more than that. In between others may take what is given back: raises what `Ledger.hold` raises, and
        then nothing is held."""
        await self.release()
        self.hold = await open_hold(self.ledger, self.terms, most, clock=self.clock)
        self.most, self._released = most, False

    def _is_owed(self, is_our_fault: bool) -> bool:
        """A caller who left owes for the prompt given to the model and for what it generated; a reply of which only
        an error was delivered is free."""
        if is_our_fault:
            return self.delivered and self.usage.completion_tokens > 0
        return self.usage.prompt_tokens > 0
