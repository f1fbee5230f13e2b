"""Whom and what a request names, on every route: kept with its usage, counted in budgets, never as it was written."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from billing.ledger.budget_settings import Budgets
from tests.serve.batches.uploading import ended, jsonl, lines_of, made
from tests.serve.compressing import CONTEXT, QUERY, Compressing, ReadyModel, local_model
from tests.serve.retrieval.serving import LEXICAL, MODELS, FakeRetrieval
from tests.serve.served import HI, Client, model_document, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALICE = "alice@people.example"
TAGS = {"metadata": {"tags": "research,nightly"}}
CHAT = {"messages": HI, "max_tokens": 6}
TOOL = {"role": "tool", "tool_call_id": "c", "content": CONTEXT}
LONG = {"messages": [{"role": "user", "content": CONTEXT}], "max_tokens": 6}
# What each route takes, and how it names a person.
ROUTES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT, {"user": ALICE, **TAGS}),
    "openai chat": ("/openai/v1/chat/completions", CHAT, {"safety_identifier": ALICE, **TAGS}),
    "stream": ("/openai/v1/chat/completions", {**CHAT, "stream": True}, {"user": ALICE, **TAGS}),
    "completion": ("/openai/v1/completions", {"prompt": "hi", "max_tokens": 6}, {"user": ALICE, **TAGS}),
    "response": ("/openai/v1/responses", {"input": "hi", "max_output_tokens": 6}, {"user": ALICE, **TAGS}),
    "message": (
        "/anthropic/v1/messages",
        CHAT,
        {"metadata": {"user_id": ALICE, "tags": "nightly, research"}},
    ),
    "compress": ("/v1/compress", {"query": QUERY, "input": CONTEXT}, {"user": ALICE, **TAGS}),
    "messages": ("/v1/compress", {"query": QUERY, "messages": [*HI, TOOL]}, {"user": ALICE, **TAGS}),
    "items": (
        "/v1/batch/compress",
        {"items": [{"id": "a", "query": QUERY, "input": CONTEXT}]},
        {"user": ALICE, **TAGS},
    ),
    "chat with compression": (
        "/v1/chat/completions",
        {**LONG, "compression": {"target_ratio": 0.5}},
        {"user": ALICE, **TAGS},
    ),
}


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_service: Compressing) -> Compressing:
    return await module_service.renewed()


async def ask(
    served: Compressing, route: str, labels: dict[str, Any] | None = None, *, tags: str = ""
) -> Client:
    """`tags` are the header's."""
    path, body, named = ROUTES[route]
    asked = {**body, **(named if labels is None else labels)}
    return await served.post(path, asked, **({"X-Pith-Tags": tags} if tags else {})).run()


async def set_project(served: Compressing, **values: Any) -> str:
    """A key that knows the project's settings."""
    await served.accounts.change_project(f"{served.workspace}/project", values)
    return await served.new_project_key()


async def set_budget(served: Compressing, usd: int = 0, **tag: str) -> None:
    await Budgets(served.database, "test").set(
        "tag" if tag else "person",
        f"{served.workspace}/project",
        "day",
        usd,
        now=datetime.now(UTC),
        **tag,
    )


@pytest.mark.parametrize("route", ROUTES)
async def test_each_route_notes_person_and_tags_and_nothing_keeps_the_persons_name(
    served: Compressing, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert (await ask(served, route)).status == 200
    events = await served.events()
    assert events
    (person,) = {event["person"] for event in events}
    assert person.startswith("psn_")
    assert {event["tags"] for event in events} == {"nightly,research"}
    assert "alice" not in f"{events}{caplog.text}"
    assert (await ask(served, route, {})).status == 200
    assert [event["person"] for event in await served.events()].count(None) == len(events)
    other = await ask(served, "chat", {"user": ALICE}, tags="research")
    assert other.status == 200
    assert [e["person"] for e in await served.events() if e["tags"] == "research"] == [person]


@pytest.mark.parametrize("route", ROUTES)
async def test_each_route_asks_for_a_person_where_the_project_does_and_for_the_tags_that_it_allows(
    served: Compressing, route: str
) -> None:
    await set_project(served, person_required=True, allowed_tags=["nightly", "research"])
    assert (await ask(served, route)).status == 200
    begun = len(await served.events())
    refused = await ask(served, route, {})
    assert refused.status == 400 and "safety_identifier or user" in refused.body.decode()
    refused = await ask(served, route, tags="other")
    assert refused.status == 400 and "does not allow the tag other" in refused.body.decode()
    assert len(await served.events()) == begun
    await served.assert_nothing_is_left_open()


async def test_tokens_are_counted_for_nobody(served: Compressing) -> None:
    await set_project(served, person_required=True)
    assert (await served.post("/anthropic/v1/messages/count_tokens", CHAT).run()).status == 200


@pytest.mark.parametrize("route", ROUTES)
async def test_a_spent_budget_of_a_person_or_of_a_tag_refuses_that_one_alone(
    served: Compressing, route: str
) -> None:
    await set_budget(served)
    refused = await ask(served, route)
    assert "person quota exceeded" in refused.body.decode() and "for each day, which resets at" in (
        refused.body.decode()
    )
    if route != "items":
        assert refused.status == 402
    assert "alice" not in refused.body.decode()
    # Whoever is not named has no such budget.
    assert (await ask(served, route, {})).status == 200
    await set_budget(served, tag="nightly")
    refused = await ask(served, route, {}, tags="nightly")
    assert "tag nightly quota exceeded" in refused.body.decode()
    await served.assert_nothing_is_left_open()


async def test_persons_at_once_stay_within_their_budgets_apart(served: Compressing) -> None:
    cost = (await served.events())[0]["cost_nano_usd"] if (await ask(served, "chat", {})).status == 200 else 0
    await set_budget(served, 4 * cost)
    names = ["alice", "bob"] * 8
    asked = await asyncio.gather(*(ask(served, "chat", {"user": name}) for name in names))
    assert {client.status for client in asked} <= {200, 402}
    served_to = [name for name, client in zip(names, asked, strict=True) if client.status == 200]
    assert {"alice", "bob"} == set(served_to)
    assert all(1 <= served_to.count(name) <= 4 for name in ("alice", "bob"))
    await served.assert_nothing_is_left_open()


async def test_what_cannot_be_read_is_refused_by_name(served: Compressing) -> None:
    for labels, field in (({"user": 7}, "user"), ({"metadata": {"tags": ["a b"]}}, "metadata.tags")):
        refused = await ask(served, "chat", labels)
        assert (refused.status, refused.json()["error"]["param"]) == (400, field)
    assert await served.events() == []


async def test_what_a_response_named_is_repeated_to_its_caller(served: Compressing) -> None:
    answer = (await ask(served, "response")).json()
    assert (answer["user"], answer["metadata"]) == (ALICE, TAGS["metadata"])


async def test_a_key_is_told_of_the_budgets_of_its_projects_persons_and_tags(served: Compressing) -> None:
    await set_budget(served, 10**12)
    await set_budget(served, 10**12, tag="research")
    assert (await ask(served, "chat")).status == 200
    (cost,) = [event["cost_nano_usd"] for event in await served.events()]
    path, header = "/v1/limits", {"Authorization": f"Bearer {served.key}"}
    told = (await Client(served.api, path, "GET", header, ()).run()).json()["budgets"]
    shown = {(one["scope"], one["tag"]): (one["limit_usd"], one["used_usd"]) for one in told}
    assert shown == {("person", None): (1000, None), ("tag", "research"): (1000, cost / 10**9)}


async def test_a_key_is_told_what_each_person_and_tag_of_its_project_used(served: Compressing) -> None:
    async def used(by: str, key: str | None = None) -> list[tuple[str, int]]:
        path, header = (
            f"/v1/usage?scope=project&group_by={by}",
            {"Authorization": f"Bearer {key or served.key}"},
        )
        rows = (await Client(served.api, path, "GET", header, ()).run()).json()["data"]
        assert rows == sorted(rows, key=lambda row: -row["cost_usd"])
        return [(row[by], row["requests"]) for row in rows]

    bob = {"user": "bob@people.example", "metadata": {"tags": "nightly"}}
    for labels in (bob, None, bob, {}):
        assert (await ask(served, "chat", labels)).status == 200
    named = [event["person"] for event in await served.events() if event["person"]]
    (two,) = {person for person in named if named.count(person) == 2}
    (one,) = {*named} - {two}
    assert await used("person") == [(two, 2), (one, 1)]
    assert await used("tag") == [("nightly", 3), ("research", 1)]
    # Neither another project of the workspace is told, nor another workspace: the same person is another hash there.
    other = f"{served.workspace}/other"
    await served.accounts.create_project(served.workspace, "other", now=datetime.now(UTC))
    _, sibling = await served.accounts.keys.create(other, "key", now=datetime.now(UTC))
    stranger = await served.new_key()
    for key in (sibling, stranger):
        assert await used("person", key) == await used("tag", key) == []
    assert (await ask(served, "chat", bob)).status == 200
    await served.events()
    ((found, number),) = await used("person", stranger)
    assert found not in (one, two) and number == 1
    assert await used("person", sibling) == []


async def test_lines_of_batches_and_embeddings_name_theirs(tmp_path: Path) -> None:
    models = [model_document("alpha"), *MODELS]
    async with serving(
        tmp_path,
        models=models,
        compression={"models": [LEXICAL]},
        retrievers={model["id"]: FakeRetrieval() for model in MODELS},
        compressors={"lexical": ReadyModel(local_model())},
    ) as service:
        served = await service.renewed()
        url = "/v1/embeddings"

        def line(custom_id: str, **body: Any) -> dict[str, Any]:
            return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"input": "one", **body}}

        project = (await served.accounts.list_projects())[-1].project
        await served.accounts.change_project(project.id, {"person_required": True})
        lines = [line("a", user=ALICE, **TAGS), line("b"), line("c", user=ALICE, metadata={"tags": ["*"]})]
        done = await ended(served, await made(served, jsonl(lines), endpoint=url))
        assert [one["custom_id"] for one in await lines_of(served, done.output_file_id)] == ["a"]
        refused = {
            one["custom_id"]: one["response"]["body"]["error"]["code"]
            for one in await lines_of(served, done.error_file_id)
        }
        assert refused == {"b": "person_required", "c": "invalid_label"}
        kept = text("SELECT person, tags FROM usage_events")
        ((person, tags),) = await served.database.read(lambda c: c.execute(kept).all())
        assert person.startswith("psn_") and tags == "nightly,research"
