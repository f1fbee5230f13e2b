"""Reconciliations in answers: how one does, and what it found."""

from typing import Literal

from pydantic import Field

from serve.ops.shapes.fields import Answer, At, Month, Usd


class Difference(Answer):
    workspace_id: str
    figure: str
    stored_usd: Usd
    rebuilt_usd: Usd = Field(description="What the rows beneath add up to.")
    difference_usd: Usd


class WrongSum(Answer):
    workspace_id: str
    table: str
    month: Month
    stored_events: int
    due_events: int
    stored_usd: Usd
    due_usd: Usd
    stored_written_off_usd: Usd
    due_written_off_usd: Usd


class WrongRow(Answer):
    workspace_id: str
    table: str
    key: list[str]
    stored: dict[str, int]
    due: dict[str, int]


class ChangedEvents(Answer):
    from_id: str
    until_id: str | None
    events_then: int
    events_now: int


class WrongFigure(Answer):
    figure: Literal["cost", "saved", "compression"]
    stored_usd: Usd
    due_usd: Usd | None


class MispricedEvent(Answer):
    event_id: str
    workspace_id: str
    charged_usd: Usd
    due_usd: Usd
    wrong: list[WrongFigure]


class WrongAdjustment(Answer):
    adjustment_id: str
    workspace_id: str
    problem: str


class WrongArchive(Answer):
    month: Month
    problem: str


class Found(Answer):
    clean: bool = Field(description="Whether everything adds up.")
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
    changed_events: list[ChangedEvents]
    mispriced_events: list[MispricedEvent]
    adjustments: int
    wrong_adjustments: list[WrongAdjustment]
    spool_waiting: int
    spool_refused: int


class ReconciliationJob(Answer):
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
