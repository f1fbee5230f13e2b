"""Two servers on one ledger: a batch is run where it was made, and what was charged can be downloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from openai.types import Batch
from sqlalchemy import text

from billing.batches.file_sql import LOST_AFTER_S
from billing.batches.file_store import DEPLOYMENT, STORE
from billing.books.books import Books
from serve.app import build_service
from serve.batches.wiring import deployment_of, with_deployment
from serve.config.billing import BatchSettings
from serve.config.settings import Settings
from tests.billing.conftest import create_database, execute_on_postgres, postgres_server
from tests.migrated import migrated_file
from tests.serve.batches.uploading import (
    BATCHES,
    FILES,
    call,
    chat_line,
    ended,
    hasty,
    jsonl,
    lines_of,
    looked_at,
    made,
    upload,
)
from tests.serve.served import EngineSwitch, Served, model_document, serving, settings_document, token_cost

__all__ = ["postgres_server"]
THREE = jsonl([chat_line(str(number)) for number in range(3)])
# Another's engines, under other names.
OTHERS = [model_document(f"other-{name}") for name in ("alpha", "beta")]


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A ledger that was migrated; its clock goes on."""
    if request.param == "sqlite":
        (tmp_path / "ledger.db").write_bytes(await migrated_file())
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server, name = request.getfixturevalue("postgres_server"), f"pith_{uuid4().hex}"
    await create_database(server, name, migrated=True)
    yield f"{server}/{name}"
    await execute_on_postgres(f"{server}/postgres", f"DROP DATABASE {name} WITH (FORCE)")


def folder_of(served: Served) -> Path:
    return served.settings.state_dir / "files"


def on_disk(served: Served) -> set[str]:
    return {path.name for path in folder_of(served).iterdir()} - {STORE}


@asynccontextmanager
async def two_servers(
    database_url: str, folder: Path, *, shared: bool = False, **of_second: Any
) -> AsyncIterator[tuple[Served, Served]]:
    """Both behind one balancer, say: one ledger, and keys that both know. `shared`: they have one folder of files."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    billing = {"database_url": database_url}
    pepper = folder / "a/var/pepper"
    async with serving(folder / "a", billing=settings_document(folder / "a")["billing"] | billing) as first:
        first = await first.renewed()
        (folder / "b/var").mkdir()
        (folder / "b/var/pepper").write_bytes(pepper.read_bytes())
        (folder / "b/var/pepper").chmod(0o600)
        if shared:
            folder_of(first).mkdir(exist_ok=True)
            (folder / "b/var/files").symlink_to(folder_of(first))
        ours = settings_document(folder / "b")["billing"] | billing
        async with serving(folder / "b", billing=ours, **of_second) as second:
            yield first, replace(second, workspace=first.workspace, key=first.key)


async def sql(served: Served, statement: str, **values: Any) -> None:
    await served.database.write(lambda c: c.execute(text(statement), values) and None)


async def in_background(served: Served) -> None:
    """What a server does of itself, whether or not there is work."""
    await served.batches.files.delete_expired()
    await served.batches.jobs.once()
    await hasty(served).once()
    await served.batches.jobs.once()


async def counted_files(served: Served) -> int:
    totals = text("SELECT coalesce(sum(files), 0) FROM batch_file_totals")
    return int(await served.database.read(lambda c: c.execute(totals).scalar_one()))


async def is_whole(served: Served, batch: Batch) -> None:
    """Each of its three lines was charged once, and can be downloaded here."""
    assert batch.status == "completed" and batch.request_counts is not None
    assert batch.request_counts.completed == 3
    assert [line["custom_id"] for line in await lines_of(served, batch.output_file_id)] == ["0", "1", "2"]
    assert [event.cost_nano_usd for event in await served.events()] == [token_cost(6) // 2] * 3
    assert (await Books(served.database).reconcile(served.spool)).is_clean


async def test_another_server_leaves_a_batch_to_those_that_reach_its_files(
    database_url: str, tmp_path: Path
) -> None:
    async with two_servers(database_url, tmp_path) as (ours, other):
        batch = await made(ours, THREE)
        # At every stage the other one looks first.
        await in_background(other)
        await ours.batches.jobs.once()
        await in_background(other)
        await hasty(ours).once()
        await in_background(other)
        assert (await looked_at(other, batch)).status in ("in_progress", "finalizing")
        await ours.batches.jobs.once()
        await is_whole(ours, await looked_at(ours, batch))
        assert other.engine.requests == [] and on_disk(other) == set()


async def test_a_file_of_another_store_is_refused_by_the_name_of_the_store(
    database_url: str, tmp_path: Path
) -> None:
    async with two_servers(database_url, tmp_path) as (ours, other):
        file_id = (await upload(ours, THREE).run()).json()["id"]
        store = (folder_of(ours) / STORE).read_text().strip()
        assert (await call(other, "GET", f"{FILES}/{file_id}").run()).status == 200
        asked = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        for refused in (call(other, "GET", f"{FILES}/{file_id}/content"), other.post(BATCHES, asked)):
            await refused.run()
            assert (refused.status, refused.json()["error"]["code"]) == (503, "stored_elsewhere")
            assert f"file store {store} has {file_id}" in refused.json()["error"]["message"]
            assert "retry-after" in refused.reply_headers
        assert (await call(other, "GET", BATCHES).run()).json()["data"] == []
        # It can be deleted from anywhere; who has it does so.
        assert (await call(other, "DELETE", f"{FILES}/{file_id}").run()).status == 200
        assert (await call(ours, "GET", f"{FILES}/{file_id}").run()).status == 404
        await in_background(other)
        assert on_disk(ours) == {file_id} and await counted_files(ours) == 1
        await in_background(ours)
        assert on_disk(ours) == set() and await counted_files(ours) == 0


async def test_files_that_are_over_are_deleted_by_who_has_them(database_url: str, tmp_path: Path) -> None:
    async with two_servers(database_url, tmp_path) as (ours, other):
        await upload(ours, THREE).run()
        await sql(ours, "UPDATE batch_files SET expires_at = 1")
        await in_background(other)
        await in_background(ours)
        assert on_disk(ours) == set() and await counted_files(ours) == 0


async def test_servers_that_share_a_folder_and_serve_other_models_leave_each_other_their_batches(
    database_url: str, tmp_path: Path
) -> None:
    async with two_servers(database_url, tmp_path, shared=True, models=OTHERS) as (ours, other):
        batch = await made(ours, THREE)
        await in_background(other)
        await ours.batches.jobs.once()
        await in_background(other)
        assert other.engine.requests == []
        await hasty(ours).once()
        # Its files may be written by whoever reaches the folder: that takes no model.
        await in_background(other)
        done = await looked_at(ours, batch)
        await is_whole(ours, done)
        await is_whole(other, done)


async def test_servers_of_one_deployment_run_each_others_batches(database_url: str, tmp_path: Path) -> None:
    async with two_servers(database_url, tmp_path, shared=True, batches={"deployment": "chat"}) as both:
        ours, other = both
        batch = await made(other, THREE)
        named = build_service(
            ours.settings.model_copy(update={"batches": other.settings.batches}),
            engines={model.id: EngineSwitch() for model in ours.settings.models},
            database=ours.database,
            ledger=ours.ledger,
        )[1]
        await is_whole(ours, await ended(replace(ours, batches=named), batch))
        assert other.engine.requests == []


def test_the_machines_of_a_cluster_are_one_deployment_and_others_are_not(tmp_path: Path) -> None:
    starter, node = (
        Settings.model_validate(settings_document(tmp_path / name)) for name in ("starter", "node")
    )
    given = with_deployment(starter)
    on_node = given.model_copy(update={"state_dir": node.state_dir})
    assert deployment_of(on_node) == deployment_of(starter) != deployment_of(node)
    named = starter.model_copy(update={"batches": BatchSettings(deployment="chat")})
    assert deployment_of(with_deployment(named)) == "chat"


async def test_what_was_charged_can_be_downloaded_when_the_server_that_ran_it_is_gone_for_good(
    database_url: str, tmp_path: Path
) -> None:
    async with two_servers(database_url, tmp_path) as (gone, other):
        batch = await made(gone, THREE)
        await gone.batches.jobs.once()
        unread = await made(gone, THREE)
        lines = replace(hasty(gone)._lines, most_kept_bytes=2**40)
        for claimed in await gone.batches.jobs._store.claim(batch.id, 2):
            await lines.run(claimed)
        # Whoever cannot wait cancels it. Then its store is away for as long as it takes to be given up.
        assert (await call(other, "POST", f"{BATCHES}/{batch.id}/cancel").run()).status == 200
        await in_background(other)
        assert (await looked_at(other, batch)).status == "finalizing"
        own = (folder_of(other) / STORE).read_text().strip()
        statement = "UPDATE file_stores SET seen_at = seen_at - :gone WHERE id <> :own"
        await sql(other, statement, gone=LOST_AFTER_S + 1, own=own)
        await in_background(other)
        done = await looked_at(other, batch)
        assert done.status == "cancelled"
        assert len(await lines_of(other, done.output_file_id)) == 2
        (given_up,) = await lines_of(other, done.error_file_id)
        assert given_up["error"]["code"] == "batch_cancelled"
        assert len(await other.events()) == 2
        # Nobody reads its input, and so nobody can run it: it ends when its time is over.
        assert (await looked_at(other, unread)).status == "validating"
        await sql(other, "UPDATE batches SET expires_at = 1 WHERE id = :id", id=unread.id)
        await in_background(other)
        assert (await looked_at(other, unread)).status == "expired"
        # What the lost store had takes no room of the project; should it come back, it is deleted there, once.
        await sql(other, "UPDATE batch_files SET expires_at = 1 WHERE store <> :own", own=own)
        assert await counted_files(other) == 4
        await in_background(other)
        assert await counted_files(other) == 2 and len(on_disk(gone)) == 2
        await in_background(gone)
        assert await counted_files(other) == 2 and on_disk(gone) == set()
        assert len(await lines_of(other, done.output_file_id)) == 2


async def test_files_and_batches_of_before_belong_to_whose_folder_has_them(
    database_url: str, tmp_path: Path
) -> None:
    async with two_servers(database_url, tmp_path) as (ours, other):
        batch = await made(ours, THREE)
        # As the release before left them.
        (folder_of(ours) / STORE).unlink()
        for table in ("batch_files", "batches"):
            await sql(ours, f"UPDATE {table} SET store = ''")
        await sql(ours, "UPDATE batches SET deployment = ''")
        await sql(ours, "DELETE FROM file_stores")
        await in_background(other)
        assert (await looked_at(other, batch)).status == "validating"
        await in_background(ours)
        await is_whole(ours, await ended(ours, batch))
        homes = text("SELECT store, deployment FROM batches")
        ids = [(folder_of(ours) / STORE), ours.settings.state_dir / DEPLOYMENT]
        assert await ours.database.read(lambda c: tuple(c.execute(homes).one())) == tuple(
            path.read_text().strip() for path in ids
        )
