"""Waits for a batch, with a bar that says how far it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve.client.batch_client import BatchClient

ENDED = ("completed", "failed", "cancelled", "expired")
LOOK_EVERY_S = 1.0


async def waited(client: BatchClient, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch once it has ended. The bar is on standard error. Raises `PithError`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(batch["status"], total=None)
        while batch["status"] not in ENDED:
            await asyncio.sleep(LOOK_EVERY_S)
            batch = await client.find(batch["id"])
            counts = batch["request_counts"]
            progress.update(
                bar,
                description=batch["status"],
                total=counts["total"] or None,
                completed=counts["completed"] + counts["failed"],
            )
    return batch
