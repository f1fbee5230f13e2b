"""A ledger with webhooks whose receiver is a real HTTP server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest

from billing.store.database import Database, open_database
from billing.webhooks.dispatcher import Dispatcher
from billing.webhooks.endpoint import Result
from billing.webhooks.secret_box import SecretBox
from billing.webhooks.sender import AllowedAddresses, HttpSender
from billing.webhooks.webhooks import Webhooks
from tests.billing.conftest import PEPPER, Books
from tests.billing.webhooks.receiver import Receiver, receiving

LOOPBACK = AllowedAddresses([ip_network("127.0.0.0/8"), ip_network("::1/128")])


@dataclass
class Hooks:
    """Webhooks of one ledger, with a sender that tests run round by round."""

    books: Books
    webhooks: Webhooks
    receiver: Receiver
    results: list[Result] = field(default_factory=list)
    opened: list[Dispatcher] = field(default_factory=list)

    def dispatcher(
        self, *, timeout_s: float = 5.0, database: Database | None = None, **kinds: Any
    ) -> Dispatcher:
        sender = HttpSender(allowed=kinds.pop("allowed", LOOPBACK), timeout_s=timeout_s)
        made = Dispatcher(
            database or self.books.database,
            SecretBox(PEPPER),
            sender,
            count=self.results.append,
            chance=lambda: 0.5,
            **kinds,
        )
        self.opened.append(made)
        return made

    async def send(self, **kinds: Any) -> None:
        """One round of a server of its own."""
        await self.dispatcher(**kinds).once()

    async def later(self, seconds: float) -> None:
        await self.books.at(self.books.clock.moment + timedelta(seconds=seconds))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
async def hooks(books: Books, receiver: Receiver) -> AsyncIterator[Hooks]:
    made = Hooks(books, Webhooks(books.database, pepper=PEPPER, actor="test"), receiver)
    yield made
    for dispatcher in made.opened:
        await dispatcher.close()


__all__ = ["open_database", "replace"]
