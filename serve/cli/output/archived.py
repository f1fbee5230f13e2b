"""What a command says beside its answer where a part of what was asked for is archived."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from billing.store.database import Database
    from serve.config.settings import Settings


async def tell_of_archive(
    database: Database, settings: Settings, what: str, since: datetime | None = None
) -> None:
    """On stderr: which months are not in the answer to `what`, from `since` on, and where they are."""
    from billing.rollups.archived import archived

    months = await database.read(archived)
    found = [one.month for one in months if since is None or one.last_settled_at >= since]
    if found:
        place = settings.billing.archive.folder
        typer.echo(
            f"not among these: {what} of {', '.join(found)}, which are archived in {place} (pith archive --find)",
            err=True,
        )
