"""Chats whose prompts were compressed, held and priced as the server does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from billing.price import ModelPrice, cost, saved_nano_usd
from billing.usage import Hold, Outcome, PromptCompression, Saving, UsageFigures, Used

if TYPE_CHECKING:
    from billing.caller import Caller
    from tests.billing.conftest import Books

# 1,000 nano-dollars a prompt token, 100 a cached one, 4,000 a completion token; 50 a token that is compressed.
CHAT = ModelPrice("chat", 1_000_000, 4_000_000, 20_000, cached_input_micro_usd_per_mtok=100_000)
COMPRESSION = ModelPrice("lexical", 50_000, 0, 0)


@dataclass(frozen=True)
class Chat:
    """Tokens of one chat: by default 10,000 of which 3,000 are sent. `compressed` are those that a priced compression
    read; 0: it was free, and has no event."""

    original: int = 10_000
    original_cached: int = 5_000
    sent: int = 3_000
    cached: int = 1_500
    completion: int = 100
    compressed: int = 8_000
    status: PromptCompression | None = "applied"
    conversation: str | None = None
    outcome: Outcome = "completed"

    @property
    def cost_nano_usd(self) -> int:
        return self._cost(self.sent, self.cached)

    @property
    def saved_nano_usd(self) -> int:
        return self._cost(self.original, self.original_cached) - self.cost_nano_usd

    @property
    def compression_nano_usd(self) -> int:
        return self.compressed * 50

    def _cost(self, prompt: int, cached: int) -> int:
        return (prompt - cached) * 1000 + cached * 100 + self.completion * 4000


@dataclass
class Chats:
    """One project's."""

    books: Books
    caller: Caller
    version: int

    @classmethod
    async def of(cls, books: Books, caller: Caller | None = None) -> Chats:
        version = await books.ledger.publish_prices([CHAT, COMPRESSION], now=books.now)
        return cls(books, caller or await books.new_caller(), version)

    async def hold(self, chat: Chat, *, now: datetime | None = None, amount: int = 10**9) -> list[Used]:
        """What is to be settled: the chat's, and the compression's where it has a price."""
        moment = now or self.books.now
        await self.books.at(moment)
        minimum = chat.outcome != "failed"
        parts = []
        if chat.compressed:
            read = UsageFigures(chat.compressed, 0, 0, stream=False)
            due = cost(COMPRESSION, prompt_tokens=chat.compressed, completion_tokens=0, minimum=minimum)
            parts = [Used(await self._hold(COMPRESSION, moment, amount), read, due)]
        tokens = {"prompt_tokens": chat.sent, "completion_tokens": chat.completion}
        due = cost(CHAT, **tokens, cached_tokens=chat.cached, minimum=minimum)
        figures = UsageFigures(
            **tokens, cached_tokens=chat.cached, stream=False, saving=_saving(chat, due.nano_usd, minimum)
        )
        return [Used(await self._hold(CHAT, moment, amount), figures, due), *parts]

    async def settle(self, chat: Chat, *, now: datetime | None = None) -> list[Used]:
        used = await self.hold(chat, now=now)
        await self.books.ledger.settle_all(used, outcome=chat.outcome, now=now or self.books.now)
        return used

    async def _hold(self, price: ModelPrice, now: datetime, amount: int) -> Hold:
        return await self.books.ledger.hold(
            self.caller,
            model_id=price.model_id,
            pricing_version=self.version,
            amount_nano_usd=amount,
            request_id="chosen by the caller",
            now=now,
        )


def _saving(chat: Chat, charged_nano_usd: int, minimum: bool) -> Saving | None:
    if chat.status is None:
        return None
    saved = saved_nano_usd(
        CHAT,
        charged_nano_usd,
        original_tokens=chat.original,
        original_cached_tokens=chat.original_cached,
        completion_tokens=chat.completion,
        minimum=minimum,
    )
    return Saving(chat.status, chat.original, chat.original_cached, saved, conversation=chat.conversation)


async def forge(books: Books, statement: str, **values: object) -> None:
    """As somebody who may change the schema: the database itself refuses to rewrite or delete an event."""

    def work(connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER IF EXISTS usage_events_no_{verb}"))
        else:
            for trigger in ("usage_events_no_change", "usage_events_no_delete"):
                connection.execute(text(f"ALTER TABLE usage_events DISABLE TRIGGER {trigger}"))
        assert connection.execute(text(statement), values).rowcount >= 1

    await books.database.write(work)
