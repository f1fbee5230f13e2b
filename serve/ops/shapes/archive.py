"""The archive in an answer."""

from typing import Literal

from pydantic import Field

from serve.ops.shapes.fields import Answer, At, Month, Usd


class ArchiveFile(Answer):
    name: str = Field(description="In the folder.")
    events: int
    bytes: int
    sha256: str


class ArchivedMonth(Answer):
    month: Month
    state: Literal["dropping", "dropped"] = Field(
        description="`dropping`: not all of its events have left the ledger; the next run goes on."
    )
    events: int
    charged_usd: Usd
    written_off_usd: Usd
    last_settled_at: At
    files: list[ArchiveFile]


class DueMonth(Answer):
    month: Month
    events: int = Field(description="In the ledger now.")
    state: Literal["sealed", "dropping"] | None = Field(
        description="How far a run came that did not end; null: none has begun it."
    )


class Archive(Answer):
    keep_months: int | None = Field(description="Whole months before the present one that stay; null: all.")
    folder: str = Field(description="Of the files, on the machine where `pith archive` runs.")
    months: list[ArchivedMonth] = Field(description="The oldest first.")
    due: list[DueMonth] = Field(description="The oldest first; it goes first.")
