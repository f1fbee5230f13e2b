"""Whether the books, and what a client was told, agree at rest."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pyarrow.parquet import read_table
from sqlalchemy import Connection, select

from billing.archive.archiver import check_all
from billing.rollups.archived import archived
from billing.store.budget_tables import budgets, rate_counters
from billing.store.schema import usage_events, workspaces
from billing.store.webhook_tables import webhook_deliveries, webhook_events
from tests.faults.leaves import leaves_of_workspaces
from tests.serve.batches.test_killed import nothing_else_is_on_disk
from tests.serve.batches.uploading import BATCHES, call, lines_of
from tests.single_faults.world import ARCHIVE, TAG, Server, books_are_clean

NOT_RECORDED = "usage_not_recorded"


@dataclass
class Told:
    """What the client was sent, and what became of the server."""

    status: int | None = None
    body: str = ""
    is_whole: bool = False
    survived: bool = False
    ahead_s: float = 0.0
    troubles: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: str) -> Told:
        told = cls()
        for line in lines.splitlines():
            what = json.loads(line)
            if "trouble" in what:
                told.troubles.append(what["trouble"])
            elif "ahead_s" in what:
                told.survived, told.ahead_s = True, what["ahead_s"]
            elif what["status"] is not None:
                told.status = what["status"]
            else:
                told.body += what["body"]
                told.is_whole = not what["more"]
        return told

    def pieces(self) -> list[Any]:
        """The JSON of a reply, or of each event of a stream that came."""
        if not self.body.startswith("data: "):
            return [json.loads(self.body)] if self.is_whole and self.body else []
        events = [one.removeprefix("data: ") for one in self.body.split("\n\n") if one]
        return [json.loads(one) for one in events if one != "[DONE]"]


async def check(server: Server) -> list[str]:
    """What must hold whatever was done."""
    troubles: list[str] = [*await server.read(_leaves), *await server.read(_uncounted)]
    return await books_are_clean(server) + troubles


def _leaves(connection: Connection) -> list[str]:
    return leaves_of_workspaces(connection, list(connection.scalars(select(workspaces.c.id)))).troubles


def _uncounted(connection: Connection) -> list[str]:
    """Events that one of the budgets does not count: all that are used are of one person and tag. That each budget has
    what its events add up to, the books say."""
    ids = set(connection.scalars(select(budgets.c.id)))
    return [
        f"of person {event['person']} and tags {event['tags']}, counted in {event['budgets']} alone"
        for event in _events(connection)
        if event["person"] is None or event["tags"] != TAG or _budgets_of(event) != ids
    ]


def _budgets_of(event: Any) -> set[str]:
    return {counter.partition(":")[0] for counter in json.loads(event["budgets"] or "[]")}


def _events(connection: Connection) -> list[Any]:
    return list(connection.execute(select(usage_events).order_by(usage_events.c.event_id)).mappings())


async def nothing_else(server: Server, told: Told) -> list[str]:
    """What holds for all of them is enough."""
    return []


async def check_reply(server: Server, told: Told) -> list[str]:
    """The reply, its events and its costs agree, and limits by hour and day count no less than its chat is charged
    for, and the request once at most."""
    counted = await server.read(lambda c: c.execute(select(rate_counters.c.id, rate_counters.c.used)).all())
    events = await server.read(_events)
    tokens = sum(
        event["prompt_tokens"] + event["completion_tokens"]
        for event in events
        if event["model_id"] == "alpha"
    )
    least = {"requests": 1 if events else 0, "tokens": tokens}
    troubles = [
        f"{id} has {used}, and used are {least}"
        for id, used in counted
        if used < least[id.split(":")[-2]] or (":requests:" in id and used > 1)
    ]
    return [*await _check_reply(server, told), *troubles]


async def _check_reply(server: Server, told: Told) -> list[str]:
    """A reply that came has its events, with the cost that it told; an error has none. Of one that broke off there is
    one request's usage at most, and no less than what came."""
    events = await server.read(_events)
    pieces = told.pieces()
    costs = _costs_told(pieces)
    charged = {event["model_id"]: int(event["cost_nano_usd"]) for event in events}
    if len(charged) != len(events):
        return [f"{len(events)} events of one request: {charged}"]
    if costs is not None:
        return [] if charged == costs else [f"the client was told {costs}, and charged is {charged}"]
    refused = next((piece["error"]["code"] for piece in pieces if "error" in piece), None)
    if refused == NOT_RECORDED:
        return []
    if refused is not None:
        return [f"the client was told {refused}, and charged is {charged}"] if charged else []
    if told.is_whole:
        return [f"an end without usage and without an error: {told.body}"]
    tokens = sum(bool(piece["choices"][0]["delta"].get("content")) for piece in pieces)
    counted = sum(int(event["completion_tokens"]) for event in events if event["model_id"] == "alpha")
    if told.survived and tokens > counted:
        return [f"{tokens} tokens came, and {counted} are charged"]
    return []


def _costs_told(pieces: list[Any]) -> dict[str, int] | None:
    """By model, in nano-dollars, where the reply says what it was charged."""
    for piece in pieces:
        service = piece.get("service") or {}
        if "receipt" in piece:
            receipt = piece["receipt"]
            return {"lexical": receipt["original_tokens"] * 20_000}
        if "billing" not in service:
            continue
        costs = {"alpha": round(service["billing"]["request_cost_usd"] * 1e9)}
        compression = service.get("compression") or {}
        if compression.get("cost_usd"):
            costs["lexical"] = round(compression["cost_usd"] * 1e9)
        return costs
    return None


async def check_batch(server: Server, told: Told) -> list[str]:
    """Each line is in the output once, and paid for once."""
    served = server.served
    (batch,) = (await call(served, "GET", BATCHES).run()).json()["data"]
    if batch["status"] != "completed" or batch["error_file_id"] is not None:
        return [f"the batch has ended so: {batch}"]
    lines = await lines_of(served, batch["output_file_id"])
    troubles = []
    if [(line["custom_id"], line["response"]["status_code"]) for line in lines] != [
        ("first", 200),
        ("second", 200),
    ]:
        troubles.append(f"its output is {lines}")
    events = await server.read(_events)
    if sorted(event["request_id"] for event in events) != sorted(line["id"] for line in lines):
        troubles.append(f"{len(events)} events of {len(lines)} lines")
    try:
        await nothing_else_is_on_disk(served, {batch["input_file_id"], batch["output_file_id"]})
    except AssertionError as error:
        troubles.append(f"other files are left: {error}")
    return troubles


async def check_deliveries(server: Server, told: Told) -> list[str]:
    """What was announced once was delivered at least once, always with its id."""
    announced = await server.read(lambda c: list(c.execute(select(webhook_events)).mappings()))
    states = await server.read(lambda c: list(c.scalars(select(webhook_deliveries.c.state))))
    received = [json.loads(line) for line in (server.folder.parent / "received").read_text().splitlines()]
    due = [[one["id"], one["payload"]] for one in announced]
    troubles = []
    if len(announced) != 1 or states != ["delivered"]:
        troubles.append(f"{len(announced)} events were announced, and are {states}")
    if not received or any(one not in due for one in received):
        troubles.append(f"{received} came, of {due}")
    return troubles


async def check_archive(server: Server, told: Told) -> list[str]:
    """Each event is in a file or in the ledger, and in no two of them."""
    folder = server.folder / ARCHIVE
    await check_all(server.served.database, folder)
    months = await server.read(archived)
    old = [row["event_id"] for path in folder.glob("*.parquet") for row in read_table(path).to_pylist()]
    here = [event["event_id"] for event in await server.read(_events)]
    troubles = [f"{month.month} is not dropped" for month in months if not month.is_dropped]
    if len(months) != 2 or (len(old), len(here), len({*old, *here})) != (4, 1, 5):
        troubles.append(f"{len(months)} months, {len(old)} events in files, {len(here)} in the ledger")
    return troubles + [f"left behind: {path.name}" for path in folder.glob("*.part")]
