"""What the routes of the admin API work with: the libraries that the `pith` command calls too, as one administrator."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from billing.accounts.accounts import Accounts
from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books
from billing.collections.collector import Collector
from billing.errors import InvalidKey
from billing.spool.spool import Spool
from billing.store.database import Database
from billing.webhooks.webhooks import Webhooks
from serve.config.settings import Settings
from serve.http.auth import bearer_key
from serve.http.client_address import client_of
from serve.http.errors import MissingKey, WrongAdminKey
from serve.http.limits import WrongKeys
from serve.ops.admin_key import Administrator, AdminKeys


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The databases of the server, opened once for all requests."""

    # A reload changes them.
    in_force: Callable[[], Settings]
    database: Database
    # For what reads all of a ledger, which may take minutes.
    patient: Database
    spool: Spool
    pepper: bytes
    clock: Callable[[], datetime]

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self.in_force()

    async def close(self) -> None:
        await self.database.close()
        await self.patient.close()
        await self.spool.close()


@dataclass(frozen=True, slots=True)
class Admin:
    """One administrator at work. Every change is noted in the audit log as the work of the key that was sent."""

    ledgers: Ledgers
    administrator: Administrator

    @property
    def actor(self) -> str:
        return self.administrator.actor

    @property
    def now(self) -> datetime:
        return self.ledgers.clock()

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.ledgers.database, pepper=self.ledgers.pepper, actor=self.actor)

    @property
    def books(self) -> Books:
        return Books(self.ledgers.patient)

    @property
    def collector(self) -> Collector:
        return Collector(self.ledgers.database, actor=self.actor)

    @property
    def webhooks(self) -> Webhooks:
        ledgers, asked = self.ledgers, self.ledgers.settings.webhooks
        return Webhooks(
            ledgers.database,
            pepper=ledgers.pepper,
            actor=self.actor,
            most=asked.max_per_workspace,
            allow_http=asked.allow_http,
        )

    @property
    def adjustments(self) -> Adjustments:
        return Adjustments(self.ledgers.database, actor=self.actor)


class Gate:
    """Lets administrators in. Wrong keys are throttled by the address that they come from."""

    def __init__(self, ledgers: Callable[[], Ledgers], keys: AdminKeys) -> None:
        self._ledgers = ledgers
        self._keys = keys
        self._wrong = WrongKeys()

    async def __call__(self, request: Request) -> Admin:
        """Whom `AdmissionMiddleware` has let in."""
        admin: Admin = request.state.admin
        return admin

    def admitted(self, request: Request) -> Admin:
        """Raises `MissingKey`, `WrongAdminKey` or `TooManyWrongKeys`."""
        try:
            given = bearer_key(request.headers.get("authorization"))
        except MissingKey:
            raise MissingKey("send an admin key as: Authorization: Bearer <ADMIN_KEY>") from None
        ledgers = self._ledgers()
        try:
            return Admin(ledgers, self._keys.administrator(given))
        except WrongAdminKey as wrong:
            client = client_of(request.client.host if request.client else None)
            counted = self._wrong.add(client, InvalidKey("admin key"), now=ledgers.clock())
            raise (wrong if isinstance(counted, InvalidKey) else counted) from None
