"""The way of a charged request: the price in force, its limits, the hold of its worst case, its reply, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from logging import Logger

from starlette.responses import Response
from starlette.types import Send

from billing.accounts.keys import require_models
from billing.caller import Caller, LimitState
from billing.errors import BudgetExceeded, QuotaExceeded
from billing.labels import require_person
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import PriceList
from billing.rate_limits.rate_limits import RateLimits
from billing.store.database import Work
from billing.transparency.notes import Signer
from billing.usage import Hold, MeteringStatus
from billing.webhooks.limit_alerts import Refusals, RefusedLimit
from models.errors import EngineRejected
from serve.http.openapi import METERING_HEADER
from serve.http.replies import Client, WorkingReply, rate_limit_headers
from serve.money.held_request import (
    AlsoWrite,
    ChargedPrompt,
    HeldRequest,
    HoldTerms,
    MostTokens,
    Receipt,
    TokenTerms,
    open_hold,
)
from serve.money.prices import PriceBook, price_of
from serve.tracing.request_record import ChargedWork, current_record, step


@dataclass(slots=True)
class Interactive:
    """To be used in one event loop."""

    under_way: int = field(default=0, init=False)
    _last: float = field(default=float("-inf"), init=False)

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Count a request while it runs; one in the background is not counted."""
        if caller.background:
            yield
            return
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._last = asyncio.get_running_loop().time()

    def quiet_s(self) -> float:
        """Seconds since the last one ended; 0 while one is under way."""
        return 0.0 if self.under_way else asyncio.get_running_loop().time() - self._last


# Other terms of a request for which the quota has no room; None: there are none.
GiveWay = Callable[[], Awaitable[TokenTerms | None]]


@dataclass(frozen=True, slots=True)
class Admissions:
    """Lets requests of every kind in, and holds the money of those that were let in."""

    prices: PriceBook
    ledger: Ledger
    limiter: RateLimits
    clock: Callable[[], datetime]
    interactive: Interactive = field(default_factory=Interactive)
    # Signs the promises of replies; None: they carry none.
    signer: Signer | None = None
    # What upkeep is to tell webhooks of.
    refusals: Refusals = field(default_factory=Refusals)

    @asynccontextmanager
    async def admit(
        self, caller: Caller, request_id: str, parts: Sequence[TokenTerms], *, route: str
    ) -> AsyncIterator[Admitted]:
        """One request within its project's limits; each of its parts is held by itself, in `Admitted.hold`. `route` is
        what usage is added up by, and names what was asked: `chat`, `embeddings`, …

        It is counted by the cheap bounds of its parts, and by their exact size, shrunk to what is enough, before it is
        refused. Raises `PersonRequired`, `ModelNotAllowed` and `PricesUnavailable` before that, and what
        `RateLimits.admit` and the parts' `count` raise.
        """
        require_person(caller)
        require_models(caller, (part.model_id for part in parts))
        if parts:
            current_record().model = parts[0].model_id

        async def count() -> int:
            for part in parts:
                part.shrink()
            return sum([part.limited(await part.counted()) for part in parts])

        with step("admission"):
            prices = await self.prices.of(caller.price_terms)
            admission = await self.limiter.admit(
                caller,
                tokens_bound=sum(part.limited(part.bound) for part in parts),
                tokens_least=sum(part.limited(part.least) for part in parts),
                count_tokens=count,
                now=self.clock(),
            )
        admitted = Admitted(self, caller, request_id, route, parts, prices, admission.headers_state)
        try:
            with self.interactive.counted(caller):
                yield admitted
        finally:
            await admission.done(admitted.used_tokens)


@dataclass(slots=True)
class Admitted:
    """A request that its project's limits let in. `limits` is what they say of it, `used_tokens` what counts so far."""

    admissions: Admissions
    caller: Caller
    request_id: str
    asked: str
    parts: Sequence[TokenTerms]
    prices: PriceList
    limits: LimitState
    used_tokens: int = 0
    # Whether it is refused where a budget would have it land.
    may_land: bool = False

    @property
    def route(self) -> str:
        """As the usage event has it: what was asked, of a line of a batch and in another service tier too."""
        how = "batch" if self.caller.background else self.caller.tier
        return f"{how}:{self.asked}" if how else self.asked

    def reply_headers(self, status: MeteringStatus) -> dict[str, str]:
        """The reply headers on money: whether its usage is on record, and what is left of the limits."""
        return {METERING_HEADER: status, **rate_limit_headers(self.limits)}

    def hold_part(
        self, tokens: TokenTerms, observed: ChargedWork, *, client: Client | None = None
    ) -> AbstractAsyncContextManager[HeldRequest]:
        """`hold` for a part of this request, such as the compression of its prompt."""
        return self.hold(tokens, observed, client=client, is_part=True)

    @asynccontextmanager
    async def hold(
        self,
        tokens: TokenTerms,
        observed: ChargedWork,
        *,
        stream: bool = False,
        client: Client | None = None,
        check: Callable[[], object] | None = None,
        give_way: GiveWay | None = None,
        prompt: ChargedPrompt | None = None,
        is_part: bool = False,
    ) -> AsyncIterator[HeldRequest]:
        """Hold the worst-case cost, and on the way out settle or release, however that comes.

        A part is settled with the request whose `prompt` it is of, and released where it is not.
        Where the quota has no room, `give_way` is asked for other terms until it has none.

        `check` is work that can refuse the request: the limits bound it, and nothing is held before it. Raises what it
        raises, and what `Ledger.hold` and the terms' `count` raise.
        """
        ledger, clock = self.admissions.ledger, self.admissions.clock
        held: HeldRequest | None = None
        try:
            require_models(self.caller, [tokens.model_id])
            with step("hold"):
                if check is not None:
                    check()
                terms, hold, most = await self._hold(tokens, give_way)
            who = client or Client()
            signer = self.admissions.signer
            held = HeldRequest(
                hold, most, terms, stream, who, ledger, observed, clock, is_part, prompt, signer
            )
            if stream:
                current_record().stream = True
            yield held
            if is_part and not held.is_settled:
                await held.release()
            elif not held.is_settled:
                raise RuntimeError(f"a request for {tokens.model_id} ended without its settlement")
        except BaseException as failure:
            if isinstance(failure, QuotaExceeded) and not isinstance(failure, BudgetExceeded):
                self.admissions.refusals.note(_refused_limit(self.caller, failure))
            observed.fail(failure)
            if held is not None:
                await held.close(failure)
            raise
        finally:
            observed.end()
            if held is not None:
                self.used_tokens += held.limited_tokens

    async def _hold(self, tokens: TokenTerms, give_way: GiveWay | None) -> tuple[HoldTerms, Hold, MostTokens]:
        refused: QuotaExceeded | None = None
        while True:
            price = price_of(self.prices, tokens.model_id)
            terms = HoldTerms(
                self.caller, price, self.prices.version, self.request_id, tokens, self.route, self.may_land
            )
            try:
                hold, most = await hold_worst_case(self.admissions.ledger, terms, clock=self.admissions.clock)
                return terms, hold, most
            except QuotaExceeded as error:
                refused = error
            except EngineRejected as error:
                # If it cannot be had on other terms, it is still the money that it lacks.
                raise refused or error from None
            other = None if give_way is None else await give_way()
            if other is None:
                raise refused
            tokens = other


async def hold_worst_case(
    ledger: Ledger, terms: HoldTerms, *, clock: Callable[[], datetime]
) -> tuple[Hold, MostTokens]:
    """Hold the bound or, where that is more than is left, the worst case of the prompt as it is counted, and in the end
    no more of a reply than is enough; and the tokens that are paid for with it.

    Raises what `Ledger.hold` and the terms' `count` raise.
    """

    async def hold(most: MostTokens) -> tuple[Hold, MostTokens]:
        return await open_hold(ledger, terms, most, clock=clock), most

    if terms.caller.metered and not terms.tokens.bound_is_proven:
        await terms.tokens.counted()
    tried = terms.tokens.best_known
    try:
        return await hold(tried)
    except QuotaExceeded as refused:
        # No request asks for less, so a caller who cannot pay for that starts no replica.
        if terms.amount_nano_usd(terms.tokens.least) > refused.left_nano_usd:
            raise
        refusal = refused
    for may_shrink in (False, True):
        if may_shrink:
            terms.tokens.shrink()
        wanted = await terms.tokens.counted()
        if wanted == tried:
            continue
        try:
            return await hold(wanted)
        except QuotaExceeded as refused:
            tried, refusal = wanted, refused
    raise refusal


def _refused_limit(caller: Caller, refusal: QuotaExceeded) -> RefusedLimit:
    """The limit that had no room for a request of this caller's."""
    key_id = caller.key_id if refusal.whose == "key" else ""
    return RefusedLimit(caller.workspace_id, key_id, refusal.span, refusal.limit_nano_usd)


# Of a reply's body. It is a row of the ledger until its batch has ended, and is in memory as a whole.
MOST_RECORDED_BYTES = 2**20
# What is to be written of a reply in one piece, of the pieces of its body and of what it was charged.
Record = Callable[[Iterable[bytes], Receipt], Work[None]]


class RecordTooLarge(Exception):
    """The reply has more bytes than are written down."""

    def __init__(self) -> None:
        super().__init__(
            f"the reply has more than {MOST_RECORDED_BYTES} bytes and is not kept; it is charged; ask for less"
        )


def recordable(pieces: Iterable[bytes]) -> bytes:
    """All of them. Raises `RecordTooLarge` as soon as they are too many."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > MOST_RECORDED_BYTES:
            raise RecordTooLarge
    return bytes(body)


class ChargedReply(WorkingReply):
    """Chats in all dialects, compressions, embeddings, rerankings, and lines of batches.

    `route` is what usage events call the request, `terms` the most that each of its parts can use. A kind does its work
    in `answer`, where it holds these, computes and settles.
    """

    # For a line of a batch, which is in one piece: what is written with its settlement.
    record: Record | None = None

    def __init__(
        self,
        admissions: Admissions,
        caller: Caller,
        request_id: str,
        route: str,
        terms: Sequence[TokenTerms],
        logger: Logger,
    ) -> None:
        super().__init__(request_id, logger)
        self._admissions = admissions
        self._caller = caller
        self._route = route
        self._terms = terms

    def admitted(self) -> AbstractAsyncContextManager[Admitted]:
        """The request within its project's limits. Raises what `Admissions.admit` raises."""
        return self._admissions.admit(self._caller, self.request_id, self._terms, route=self._route)

    async def work(self, send: Send, client: Client) -> Response | None:
        async with self.admitted() as admitted:
            return await self.answer(admitted, client)

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        """The reply in one piece, once it is charged. Raises what the work raises, and what `Admitted.hold` and
        `HeldRequest.settle` do."""
        raise NotImplementedError

    def also_write(self, pieces: Callable[[Receipt], Iterable[bytes]]) -> AlsoWrite | None:
        """With a settlement: the reply, whose pieces follow from what was charged. None where it is sent."""
        record = self.record
        return None if record is None else lambda receipt: record(pieces(receipt), receipt)
