"""Every line that a batch can have is refused where a limit is spent: each limit with each endpoint and kind of key,
and each endpoint with each kind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from serve.batches import line_run
from tests.serve.batches.uploading import hasty, jsonl, made
from tests.serve.money.bypass.house import SPENDING, Account, House, open_house, told_of, why_open
from tests.serve.money.bypass.limits import KINDS, LIMITS, Kind, Limit
from tests.serve.money.bypass.shapes import SHAPES, Shape

pytestmark = pytest.mark.asyncio(loop_scope="module")

METERED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "unmetered")
# Lines are not streamed, have the batch's price, and come with its key.
LINES = [
    shape
    for shape in SHAPES
    if shape.row.in_batches and not shape.streams and not shape.tier and shape.header == "authorization"
]
ENDPOINTS = tuple(dict.fromkeys(shape.row.in_batches for shape in LINES))
# Nobody waits for lines, so that they have no limits a minute and at the same time.
BINDING = [name for name in LIMITS if not name.endswith(("per_minute", "in_flight"))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("matrix")) as found:
        yield found


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a line waits a few times for what others hold."""
    monkeypatch.setattr(line_run, "MOST_ATTEMPTS", 1)


async def make(account: Account, kind: Kind, endpoint: str | None, *, is_labelled: bool = True) -> str:
    """The id of a batch with a line of each shape of the endpoint."""
    lines = [
        {
            "custom_id": shape.name,
            "method": "POST",
            "url": endpoint,
            "body": {**model_of(shape), **shape.body, **(shape.labels if is_labelled else {})},
        }
        for shape in LINES
        if shape.row.in_batches == endpoint
    ]
    served = replace(account.house.served, key=account.tokens[kind])
    return (await made(served, jsonl(lines), endpoint=str(endpoint))).id


def model_of(shape: Shape) -> dict[str, Any]:
    """Which every line names."""
    return {"model": "lexical" if shape.row.path == "/v1/compress" else "alpha"}


async def results(account: Account, batch_id: str) -> dict[str, dict[str, Any]]:
    """The responses of an ended batch by line, also where no key can read them any more."""
    served = account.house.served
    asked = text("SELECT status, output_file_id, error_file_id FROM batches WHERE id = :id")
    row = await served.database.read(lambda c: c.execute(asked, {"id": batch_id}).one())
    assert row.status == "completed", row
    found = {}
    for file_id in filter(None, (row.output_file_id, row.error_file_id)):
        with served.batches.files.folder.open(file_id) as file:
            for line in map(json.loads, file.read().splitlines()):
                found[line["custom_id"]] = line["response"]
    return found


async def run(house: House) -> None:
    """Everything that there is to do for batches."""
    for _ in range(2):
        await house.served.batches.jobs.once()
        await hasty(house.served).once()
    await house.served.batches.jobs.once()


def cells(name: str) -> Iterator[tuple[Kind, str | None]]:
    """Each endpoint with a kind of key; over all limits, with every kind."""
    start = BINDING.index(name)
    for place, endpoint in enumerate(ENDPOINTS):
        yield METERED[(start + place) % len(METERED)], endpoint


@pytest.mark.parametrize("name", BINDING)
async def test_no_line_is_let_in(house: House, name: str) -> None:
    limit = LIMITS[name]
    account = await house.account(limit)
    is_labelled = limit.is_of_labelled
    batches = {
        await make(account, kind, endpoint, is_labelled=is_labelled): kind for kind, endpoint in cells(name)
    }
    async with house.spent(limit, account):
        before = house.work
        await run(house)
        found = [
            cell for id_, kind in batches.items() for cell in await open_lines(account, limit, id_, kind)
        ]
        assert found == []
        assert house.work == before or is_spared(limit, "plain")
    routes = {route for id_, route in await account.events() if id_ != SPENDING}
    assert not routes or (is_spared(limit, "plain") and "batch:compress" not in routes)


def is_spared(limit: Limit, kind: Kind) -> bool:
    return any(limit.spared(shape, kind) for shape in LINES)


async def open_lines(account: Account, limit: Limit, batch_id: str, kind: Kind) -> list[str]:
    found, responses = [], await results(account, batch_id)
    for shape in (shape for shape in LINES if shape.name in responses):
        response = responses[shape.name]
        answer = told_of(response["status_code"], response["body"])
        if limit.spared(shape, kind) is not None:
            assert answer[0] == 200, (shape.name, answer)
        elif (why := why_open(limit, "/openai/", answer)) is not None:
            found.append(f"{limit.name} / {shape.name} / {kind}: {why}")
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_every_line_is_run_where_there_is_room_and_waits_for_no_rate(house: House, kind: Kind) -> None:
    limit = LIMITS["project tokens_per_minute"]
    account = await house.account(limit)
    async with house.spent(limit, account):
        batches = [await make(account, kind, endpoint) for endpoint in ENDPOINTS]
        await run(house)
    found = {name: line for id_ in batches for name, line in (await results(account, id_)).items()}
    assert {name: line["status_code"] for name, line in found.items()} == {s.name: 200 for s in LINES}
