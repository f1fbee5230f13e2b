"""Views of money: collections, adjustments, usage that waits for the ledger, and reconciliations."""

import json
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from billing.adjustments.adjustment import Kind
from billing.books.books import Reconciliation
from billing.collections.collection import State
from billing.ledger import spool
from serve.operator.view import At, Listed, Month, Record, Usd, View, found_at


class Collection(View):
    id: str
    idempotency_key: str = Field(description="For the payment system: the same collection is paid once.")
    workspace_id: str
    workspace: str = Field(validation_alias="workspace_name")
    cents: int
    usd: Usd
    state: State
    reference: str | None = Field(description="What the payment system calls it.")
    note: str | None
    times_opened: int
    created_at: At
    updated_at: At
    handed_over_at: At | None
    closed_at: At | None


class Collections(Listed):
    data: list[Collection]


class CutCollections(View):
    data: list[Collection] = Field(description="One, or none where there was not one whole cent.")


class Adjustment(View):
    id: str
    created_at: At
    month: Month
    workspace_id: str
    workspace: str = Field(validation_alias="workspace_name")
    kind: Kind
    usd: Usd = Field(description="What it added to what is owed: below 0 of a credit and of a refund.")
    event_id: str | None = Field(description="Of a refund: the usage event.")
    project_id: str | None
    key_id: str | None
    reason: str
    actor: str
    idempotency_key: str


class Adjustments(View):
    data: list[Adjustment]


class SpooledEvent(View):
    event_id: str
    state: Literal["waiting", "set aside"]
    refusal: str | None = Field(description="Why the ledger refused it.")
    event: Any = Field(description="As it was written down: an object, or text that is none.")


class SpooledEvents(View):
    data: list[SpooledEvent]


class Retried(View):
    outcome: str = Field(description="`in the ledger`, or why not.")


def spooled_row(found: spool.SpooledEvent) -> Record:
    try:
        event = json.loads(found.event)
    except ValueError:
        # Shown as it is: that it is not JSON may be why the event was set aside.
        event = found.event
    return SpooledEvent.row(found, state="waiting" if found.refusal is None else "set aside", event=event)


class Difference(View):
    workspace_id: str
    figure: str
    stored_usd: Usd
    rebuilt_usd: Usd = Field(description="What the rows beneath add up to.")
    difference_usd: Usd


class WrongSum(View):
    workspace_id: str
    table: str
    month: Month
    stored_events: int = found_at("stored", "events")
    due_events: int = found_at("due", "events")
    stored_usd: Usd = found_at("stored", "cost_nano_usd")
    due_usd: Usd = found_at("due", "cost_nano_usd")
    stored_written_off_usd: Usd = found_at("stored", "written_off_nano_usd")
    due_written_off_usd: Usd = found_at("due", "written_off_nano_usd")


class WrongRow(View):
    workspace_id: str
    table: str
    key: list[str]
    stored: dict[str, int] = Field(validation_alias="stored_otherwise")
    due: dict[str, int] = Field(validation_alias="due_otherwise")


class ChangedEvents(View):
    from_id: str
    until_id: str | None
    events_then: int
    events_now: int


class WrongFigure(View):
    figure: Literal["cost", "saved", "compression"]
    stored_usd: Usd
    due_usd: Usd | None


class MispricedEvent(View):
    event_id: str
    workspace_id: str
    charged_usd: Usd = found_at("charged", "nano_usd")
    due_usd: Usd = found_at("due", "nano_usd")
    wrong: list[WrongFigure]


class WrongAdjustment(View):
    adjustment_id: str
    workspace_id: str
    problem: str


class WrongArchive(View):
    month: Month
    problem: str


class Found(View):
    clean: bool = Field(validation_alias="is_clean", description="Whether everything adds up.")
    workspaces: int
    events: int
    posted_usd: Usd
    collected_usd: Usd
    credited_usd: Usd
    uncollected_usd: Usd
    held_usd: Usd
    written_off_usd: Usd
    events_read: int = Field(description="Of this proof; the others were proven before.")
    differences: list[Difference]
    wrong_sums: list[WrongSum]
    wrong_archives: list[WrongArchive]
    wrong_rows: list[WrongRow]
    unequal_sums: list[WrongRow]
    changed_events: list[ChangedEvents] = Field(validation_alias="changed")
    mispriced_events: list[MispricedEvent] = Field(validation_alias="mispriced")
    adjustments: int
    wrong_adjustments: list[WrongAdjustment]
    wrong_log: list[str] = Field(description="What is wrong with the transparency log.")
    spool_waiting: int
    spool_refused: int


class ReconciliationJob(View):
    id: str
    state: Literal["running", "done", "failed"]
    full: bool
    rebuild: bool
    began_at: At
    ended_at: At | None = Field(None, description="Once it is done, or failed.")
    rebuilt: list[Difference] | None = Field(
        None, description="With `rebuild`: the balances that it changed."
    )
    result: Found | None = Field(None, description="Once it is done.")
    problem: str | None = Field(None, description="Where it failed: why.")


def reconciliation_row(found: Reconciliation) -> Record:
    totals = found.totals
    return Found.row(found, **asdict(totals), uncollected_nano_usd=totals.uncollected_nano_usd)
