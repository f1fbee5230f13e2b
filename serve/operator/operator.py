"""The operator at work: what an administrator does with the ledger, by a command or over HTTP, answered in views."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from billing.accounts.account_sql import Page
from billing.accounts.accounts import Accounts
from billing.accounts.keys import KeyChange, KeyTerms
from billing.adjustments.adjustments import Adjustments
from billing.archive.archiver import archived_events, planned
from billing.archive.month_files import manifest_of
from billing.books.books import Books
from billing.books.compressions import comparisons, receipts
from billing.books.preservation import preservation
from billing.books.saving import Dimension, PreservedBy
from billing.books.statement_proof import StatementProof, statement_proof
from billing.books.usage_report import usage
from billing.collections.collection import State
from billing.collections.collector import Collector
from billing.ledger.budget_settings import Budgets, BudgetScope
from billing.ledger.spool import Spool
from billing.originals.original_store import OriginalStore
from billing.periods import PeriodKind
from billing.rollups import archived
from billing.store.database import Database
from billing.transparency.cosigned import read_cosigned
from billing.transparency.notes import Signer, signer
from billing.webhooks.webhooks import Webhooks
from serve.config.settings import Settings
from serve.money.ledger_setup import witness_key
from serve.operator import accounts as views
from serve.operator import books, money
from serve.operator.adapters import ServedAdapters
from serve.operator.view import Record


@dataclass(frozen=True, slots=True)
class Operator:
    """Every change is noted in the audit log as the work of `actor`. Its methods raise what billing's do."""

    actor: str
    settings: Settings
    database: Database
    # For what reads all of a ledger, which may take minutes.
    patient: Database
    spool: Spool
    pepper: Callable[[], bytes]
    clock: Callable[[], datetime]
    # None: not in the process that has started the server.
    adapters: ServedAdapters | None = None

    @property
    def now(self) -> datetime:
        return self.clock()

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.database, pepper=self.pepper(), actor=self.actor)

    @property
    def books(self) -> Books:
        return Books(self.patient)

    @property
    def collector(self) -> Collector:
        return Collector(self.database, actor=self.actor)

    @property
    def adjustments(self) -> Adjustments:
        return Adjustments(self.database, actor=self.actor)

    @property
    def webhooks(self) -> Webhooks:
        asked = self.settings.webhooks
        return Webhooks(
            self.database,
            pepper=self.pepper(),
            actor=self.actor,
            most=asked.max_per_workspace,
            allow_http=asked.allow_http,
        )

    async def create_workspace(self, name: str, **settings: Any) -> Record:
        return views.workspace_row(await self.accounts.create_workspace(name, **settings, now=self.now))

    async def workspaces(self, page: Page | None = None) -> list[Record]:
        return [views.workspace_row(one) for one in await self.accounts.list_workspaces(page)]

    async def change_workspace(self, workspace: str, values: Mapping[str, Any]) -> Record:
        return views.workspace_row(await self.accounts.change_workspace(workspace, values))

    async def revoke_workspace(self, workspace: str) -> Record:
        return views.workspace_row(await self.accounts.revoke_workspace(workspace, now=self.now))

    async def create_project(self, workspace: str, name: str, **settings: Any) -> Record:
        made = await self.accounts.create_project(workspace, name, **settings, now=self.now)
        return views.Project.row(made)

    async def projects(self, workspace: str | None, page: Page | None = None) -> list[Record]:
        found = await self.accounts.list_projects(workspace, page)
        return [views.listed_project_row(one) for one in found]

    async def change_project(self, project: str, values: Mapping[str, Any]) -> Record:
        return views.Project.row(await self.accounts.change_project(project, values))

    async def revoke_project(self, project: str) -> Record:
        return views.Project.row(await self.accounts.revoke_project(project, now=self.now))

    async def forget_originals(self, project: str) -> Record:
        store = OriginalStore(self.database)
        return views.Forgotten.row(await store.forget(project, actor=self.actor, now=self.now))

    async def create_key(self, project: str, name: str, terms: KeyTerms) -> Record:
        record, secret = await self.accounts.keys.create(project, name, terms=terms, now=self.now)
        return views.MadeKey.row(record, key=secret)

    async def keys(
        self, workspace: str | None, project: str | None, page: Page | None = None
    ) -> list[Record]:
        found = await self.accounts.keys.listed(workspace, project, page)
        return [views.listed_key_row(one) for one in found]

    async def change_key(self, key: str, change: KeyChange) -> Record:
        return views.Key.row(await self.accounts.keys.change(key, change, now=self.now))

    async def rotate_key(self, key: str, overlap: timedelta) -> Record:
        record, secret, old = await self.accounts.keys.rotate(key, overlap=overlap, now=self.now)
        return views.RotatedKey.row(record, key=secret, replaces=old)

    async def revoke_key(self, key: str) -> Record:
        return views.Key.row(await self.accounts.keys.revoke(key, now=self.now))

    async def set_budget(
        self, scope: BudgetScope, of: str, period: PeriodKind, limit_nano_usd: int, **how: Any
    ) -> Record:
        """`how`: its `tag`, `at_end` and `land_from_percent`."""
        setting = Budgets(self.database, self.actor).set(
            scope, of, period, limit_nano_usd, now=self.now, **how
        )
        return views.Budget.row(await setting)

    async def budgets(self, workspace: str | None, page: Page | None = None) -> list[Record]:
        found = await Budgets(self.database, self.actor).listed(workspace, page)
        return [views.Budget.row(one) for one in found]

    async def remove_budget(self, budget: str) -> Record:
        return views.Budget.row(await Budgets(self.database, self.actor).remove(budget, now=self.now))

    async def add_webhook(self, url: str, workspace: str | None, events: Sequence[str]) -> Record:
        added, secret = await self.webhooks.add(url, workspace=workspace, events=events)
        return views.MadeWebhook.row(added, secret=secret)

    async def list_webhooks(self, workspace: str | None, page: Page | None = None) -> list[Record]:
        return [views.Webhook.row(one) for one in await self.webhooks.listed(workspace, page)]

    async def remove_webhook(self, webhook: str) -> Record:
        return views.Webhook.row(await self.webhooks.remove(webhook))

    async def enable_webhook(self, webhook: str) -> Record:
        return views.Webhook.row(await self.webhooks.enable(webhook))

    async def rotate_webhook_secret(self, webhook: str) -> Record:
        changed, secret = await self.webhooks.rotate_secret(webhook)
        return views.MadeWebhook.row(changed, secret=secret)

    async def test_webhook(self, webhook: str) -> Record:
        return views.delivery_row(await self.webhooks.test(webhook))

    async def deliveries(self, webhook: str | None, **which: Any) -> list[Record]:
        return [views.delivery_row(one) for one in await self.webhooks.deliveries(webhook, **which)]

    async def redeliver(self, event: str, webhook: str | None) -> list[Record]:
        return [views.delivery_row(one) for one in await self.webhooks.redeliver(event, endpoint=webhook)]

    async def collections(self, **which: Any) -> list[Record]:
        return [money.Collection.row(one) for one in await self.collector.listed(**which)]

    async def cut_collection(self, workspace: str) -> list[Record]:
        """One, or none where there is not one whole cent."""
        cut = await self.collector.cut_now(workspace, now=self.now)
        return [money.Collection.row(cut)] if cut else []

    async def mark_collection(self, collection: str, state: State, **said: str | None) -> Record:
        marked = await self.collector.mark(collection, state, **said, now=self.now)
        return money.Collection.row(marked)

    async def list_adjustments(self, **which: Any) -> list[Record]:
        return [money.Adjustment.row(one) for one in await self.adjustments.listed(**which)]

    async def credit(self, workspace: str, **terms: Any) -> Record:
        return money.Adjustment.row(await self.adjustments.credit(workspace, **terms))

    async def adjust(self, workspace: str, **terms: Any) -> Record:
        return money.Adjustment.row(await self.adjustments.adjust(workspace, **terms))

    async def refund(self, event_id: str, **terms: Any) -> Record:
        return money.Adjustment.row(await self.adjustments.refund(event_id, **terms))

    async def event_of_request(self, workspace: str, request_id: str, since: datetime | None) -> str:
        """Raises `UnknownRequest` and `AmbiguousRequest`."""
        found = Adjustments(self.patient, actor=self.actor)
        return await found.event_of_request(workspace, request_id, since=since)

    async def usage(self, by: Sequence[Dimension], **which: Any) -> list[Record]:
        return [books.UsageRow.row(one) for one in await self.patient.read(partial(usage, by=by, **which))]

    async def savings(self, by: Sequence[Dimension], **which: Any) -> list[Record]:
        return [
            books.SavingsRow.row(one) for one in await self.patient.read(partial(comparisons, by=by, **which))
        ]

    async def preservation(self, by: Sequence[PreservedBy], **which: Any) -> list[Record]:
        found = await self.patient.read(partial(preservation, by=by, **which))
        return [books.PreservationRow.row(one) for one in found]

    async def statement(self, workspace: str, month: str) -> Record:
        asked_at = self.now
        return books.statement_row(await self.books.statement(workspace, month), asked_at)

    @property
    def log_signer(self) -> Signer:
        return signer(self.pepper(), self.settings.log.origin)

    async def statement_proof(self, workspace: str, month: str, from_size: int | None) -> StatementProof:
        folder = self.settings.billing.archive.folder
        make = partial(
            statement_proof,
            workspace=workspace,
            month=month,
            from_size=from_size,
            made_at=self.now,
            archived=await archived_events(self.patient, folder, workspace, month),
        )
        return await read_cosigned(self.patient.read, make, witness_key(self.settings))

    async def rebuild(self) -> list[Record]:
        """The balances that were set to what their rows add up to."""
        changed = await self.books.rebuild(actor=self.actor, now=self.now)
        return [money.Difference.row(one) for one in changed]

    async def reconcile(self, *, full: bool) -> Record:
        return money.reconciliation_row(await self.books.reconcile(self.spool, full=full))

    async def receipts(self, **which: Any) -> list[Record]:
        found = await self.patient.read(partial(receipts, **which))
        return [books.Receipt.row(one) for one in found]

    async def audit_log(self, **which: Any) -> list[Record]:
        return [books.AuditEntry.row(one) for one in await self.books.audit_log(**which)]

    async def archived_months(self) -> list[archived.ArchivedMonth]:
        return await self.patient.read(archived.archived)

    async def archive(self) -> Record:
        """The months whose usage events are in files, and those that `pith archive` would move now."""
        asked, months = self.settings.billing.archive, []
        for month in await self.archived_months():
            manifest = manifest_of(
                await self.patient.read(partial(archived.stored_manifest, month=month.month))
            )
            months.append(books.archived_row(month, manifest))
        due = [books.DueMonth.row(one) for one in await planned(self.patient, asked.keep_months)]
        return {"keep_months": asked.keep_months, "folder": str(asked.folder), "months": months, "due": due}
