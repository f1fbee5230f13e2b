"""The admin API on a real port: everything that the `pith` command does, for who has an admin key, and nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry, Counter

from billing.accounts import account_sql, key_sql
from billing.adjustments.adjustment import Adjustment, Wanted
from billing.adjustments.adjustments import Adjustments
from billing.errors import LedgerUnavailable
from billing.export import exporter
from serve.cli.main import VERBS, LightGroup
from serve.config.settings import Settings, load_settings
from serve.ops import money_routes, reconciling
from serve.ops.administration import AdminKeys
from serve.ops.app import admin_key_file, open_ops
from tests.integration.running import free_port, wait_for
from tests.migrated import migrated_file
from tests.serve.cli.test_storage import of_years, pith
from tests.serve.money.two_workspaces import commands
from tests.serve.ops.documented import checked, successes
from tests.serve.served import settings_document

NOBODY = {"Authorization": "Bearer nobody"}


@dataclass(frozen=True)
class Ops:
    """An ops port that listens, and clients of it with and without the admin key."""

    settings: Settings
    admin: httpx.Client
    anybody: httpx.Client

    def made(self, path: str, **body: Any) -> Any:
        reply = self.admin.post(f"/admin/v1/{path}", json=body)
        assert reply.status_code in (200, 201), reply.text
        return reply.json()

    def read(self, path: str, **query: Any) -> Any:
        reply = self.admin.get(f"/admin/v1/{path}", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    folder = tmp_path_factory.mktemp("ops")
    (folder / "pith.db").write_bytes(asyncio.run(migrated_file()))
    settings = Settings.model_validate(settings_document(folder, ops={"port": free_port()}))
    registry = CollectorRegistry()
    Counter("pith_things", "Things.", registry=registry).inc(3)
    close = open_ops(settings, registry)
    key = (settings.state_dir / "admin-key").read_text().strip()
    url = f"http://127.0.0.1:{settings.ops.port}"
    try:
        with (
            httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as admin,
            httpx.Client(base_url=url) as anybody,
        ):
            check = checked(anybody.get("/openapi.json").json())
            for client in (admin, anybody):
                client.event_hooks = {"response": [check]}
            yield Ops(settings, admin, anybody)
    finally:
        close()


def test_a_scrape_needs_no_key_and_is_what_it_was(ops: Ops) -> None:
    reply = ops.anybody.get("/metrics", headers={"Accept-Encoding": "identity"})
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert (
        "# HELP pith_things_total Things.\n# TYPE pith_things_total counter\npith_things_total 3.0\n"
        in reply.text
    )
    assert (
        ops.anybody.get("/metrics", headers={"Accept-Encoding": "gzip"}).headers["content-encoding"] == "gzip"
    )


def test_the_admin_key_is_made_for_its_owner_alone(ops: Ops) -> None:
    file = ops.settings.state_dir / "admin-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = file.read_text()
    assert admin_key_file(ops.settings) == file and file.read_text() == made


def routes_of(ops: Ops) -> list[tuple[str, str]]:
    document = ops.anybody.get("/openapi.json").json()
    return [(method, path) for path, found in document["paths"].items() for method in found]


def test_no_admin_route_answers_without_the_key_or_with_that_of_a_workspace(ops: Ops) -> None:
    ops.made("workspaces", name="tenant")
    ops.made("projects", workspace="tenant", name="p")
    token = ops.made("keys", project="tenant/p")["key"]
    asked = [(method, path) for method, path in routes_of(ops) if path.startswith("/admin/")]
    assert len(asked) > 25
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        for method, path in asked:
            reply = ops.anybody.request(
                method, path.replace("{", "").replace("}", ""), headers=headers, json={}
            )
            assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer", (method, path)
            assert reply.json()["error"]["code"] in ("missing_api_key", "invalid_admin_key")
            assert "tenant" not in reply.text
            assert "access-control-allow-origin" not in reply.headers and "set-cookie" not in reply.headers


def test_wrong_keys_are_throttled_and_the_right_one_is_not(ops: Ops) -> None:
    statuses = {ops.anybody.get("/admin/v1/audit", headers=NOBODY).status_code for _ in range(70)}
    assert statuses == {401, 429}
    assert ops.read("audit", limit=1)["data"]


@pytest.mark.parametrize("headers", [{}, NOBODY])
def test_what_is_sent_without_the_key_is_not_even_read(ops: Ops, headers: dict[str, str]) -> None:
    as_json = {"Content-Type": "application/json"}
    for method, path in (
        ("POST", "keys"),
        ("PATCH", "workspaces/x"),
        ("GET", "usage?by=nothing"),
        ("GET", "x"),
    ):
        reply = ops.anybody.request(method, f"/admin/v1/{path}", content=b"{", headers={**headers, **as_json})
        assert reply.status_code in (401, 429), (path, reply.text)
    sent = {ops.anybody.post("/admin/v1/keys", content=b"{", headers=NOBODY).status_code for _ in range(70)}
    assert 429 in sent and sent <= {401, 429}


@pytest.mark.parametrize("body", [b"\xff", b"[" * 60_000, b"{", b'{"name": "\xff"}'])
def test_a_body_that_is_no_json_is_refused_as_it_is_documented(ops: Ops, body: bytes) -> None:
    reply = ops.admin.post("/admin/v1/workspaces", content=body, headers={"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid_body")


def test_openapi_is_valid_and_the_pages_come_from_this_machine(ops: Ops) -> None:
    document = ops.anybody.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    shape = "#/components/schemas/ErrorBody"
    for path, each in document["paths"].items():
        for found in each.values() if path.startswith("/admin/") else ():
            errors = {status: one for status, one in found["responses"].items() if status >= "400"}
            assert errors.keys() >= {"401", "422", "429", "503"} and ("{" not in path or "404" in errors), (
                path
            )
            assert {one["content"]["application/json"]["schema"]["$ref"] for one in errors.values()} == {
                shape
            }
    created = document["paths"]["/admin/v1/keys"]["post"]["responses"]
    assert {"201", "404", "409"} <= created.keys() and "HTTPValidationError" not in str(document)
    operations = [found["operationId"] for each in document["paths"].values() for found in each.values()]
    assert len(operations) == len(set(operations))
    assert all("security" in found for path, each in document["paths"].items() for found in each.values())
    assert ops.anybody.get("/docs").status_code == 200


def test_every_answer_is_documented_with_its_fields_or_as_a_file(ops: Ops) -> None:
    document = ops.anybody.get("/openapi.json").json()
    for route, said in successes(document):
        kinds = {kind: one["schema"] for kind, one in said["content"].items()}
        as_json = kinds.pop("application/json", None)
        assert as_json is None or as_json["$ref"].rsplit("/", 1)[1] in document["components"]["schemas"], (
            route
        )
        assert as_json or kinds, route
    export = document["paths"]["/admin/v1/events/export"]["get"]["responses"]["200"]
    assert {"X-Export-Until", "X-Export-Cursor", "X-Request-ID"} <= export["headers"].keys()
    assert {"application/jsonl", "application/vnd.apache.parquet"} <= export["content"].keys()


def test_a_project_is_told_to_promise_its_usage_and_null_says_nothing(ops: Ops) -> None:
    ops.made("workspaces", name="promising")
    made = ops.made("projects", workspace="promising", name="p", proof=True)
    path = f"/admin/v1/projects/{made['id']}"
    changed = [ops.admin.patch(path, json={"proof": said}).json()["proof"] for said in (None, False)]
    assert [made["proof"], *changed] == [True, True, False]


def test_a_key_is_made_changed_rotated_and_revoked_with_its_powers(ops: Ops) -> None:
    ops.made("workspaces", name="acme", spend_limit_usd="12.5")
    project = ops.made(
        "projects", workspace="acme", name="search", requests_per_minute=7, weight=3, tokens_per_day=90
    )
    assert (project["tokens_per_day"], project["tokens_per_hour"], project["weight"]) == (90, None, 3)
    made = ops.made(
        "keys",
        project="acme/search",
        name="laptop",
        expires_at="2126-01-01T00:00:00Z",
        allowed_models=["alpha"],
        allowed_routes=["chat", "models"],
        monthly_limit_usd="3",
    )
    assert made["key"].startswith(f"pith_{made['id']}_")
    assert (made["monthly_limit_usd"], made["posted_usd"], made["allowed_models"]) == ("3", "0", ["alpha"])
    changed = ops.admin.patch(
        f"/admin/v1/keys/{made['id']}",
        json={"allowed_models": None, "requests_per_minute": 5, "requests_per_hour": 50},
    ).json()
    assert (changed["allowed_models"], changed["requests_per_minute"]) == (None, 5)
    assert changed["requests_per_hour"] == 50
    assert (changed["allowed_routes"], changed["monthly_limit_usd"]) == (["chat", "models"], "3")
    rotated = ops.made(f"keys/{made['id']}/rotate", overlap_s=3600)
    assert (rotated["limits_of"], rotated["monthly_limit_usd"]) == (made["id"], "3")
    assert rotated["replaces"]["expires_at"] < "2126" and rotated["expires_at"].startswith("2126-01-01")
    assert ops.made(f"keys/{made['id']}/revoke")["revoked_at"] is not None
    listed = {one["id"]: one for one in ops.read("keys", project=project["id"])["data"]}
    assert (listed[made["id"]]["state"], listed[rotated["id"]]["state"]) == ("key revoked", "active")
    assert "key" not in listed[rotated["id"]] and made["key"] not in str(ops.read("audit", workspace="acme"))
    actions = [(entry["action"], entry["actor"]) for entry in ops.read("audit", workspace="acme")["data"]]
    key = (ops.settings.state_dir / "admin-key").read_text().strip()
    actor = AdminKeys(ops.settings.state_dir / "admin-key").actor_of(key)
    assert actions == [
        (action, actor)
        for action in (
            *("workspace.create", "project.create", "key.create", "key.change"),
            *("key.rotate", "key.create", "key.revoke"),
        )
    ]
    assert key not in actor


def test_two_administrators_who_change_different_limits_at_once_both_have_their_way(ops: Ops) -> None:
    ops.made("workspaces", name="shared", spend_limit_usd="1000", monthly_limit_usd="1000")
    project = ops.made("projects", workspace="shared", name="p")["id"]

    def patch(path: str, body: dict[str, Any]) -> int:
        return ops.admin.patch(f"/admin/v1/{path}", json=body).status_code

    for n in range(1, 6):
        changes = [
            ("workspaces/shared", {"spend_limit_usd": str(n)}),
            ("workspaces/shared", {"monthly_limit_usd": str(10 * n)}),
            (f"projects/{project}", {"requests_per_minute": n}),
            (f"projects/{project}", {"tokens_per_minute": 10 * n}),
        ]
        with ThreadPoolExecutor(len(changes)) as threads:
            assert set(threads.map(lambda change: patch(*change), changes)) == {200}
        found = ops.read("workspaces/shared")
        assert (found["spend_limit_usd"], found["monthly_limit_usd"]) == (str(n), str(10 * n))
        part = ops.read(f"projects/{project}")
        assert (part["requests_per_minute"], part["tokens_per_minute"]) == (n, 10 * n)


def test_one_change_of_several_settings_is_one_entry_of_the_audit_log(ops: Ops) -> None:
    ops.made("workspaces", name="several", spend_limit_usd="5")
    changes = {"spend_limit_usd": None, "monthly_limit_usd": "2", "billing_enabled": False}
    assert ops.admin.patch("/admin/v1/workspaces/several", json=changes).status_code == 200
    project = ops.made("projects", workspace="several", name="p")["id"]
    rates = {"metered": False, "max_in_flight": 3, "weight": 2}
    assert ops.admin.patch(f"/admin/v1/projects/{project}", json=rates).status_code == 200
    entries = ops.read("audit", workspace="several")["data"]
    assert [(one["action"], len(one["details"])) for one in entries if "change" in one["action"]] == [
        ("workspace.change", 3),
        ("project.change", 3),
    ]


def test_what_was_made_for_an_idempotency_key_is_answered_again(ops: Ops) -> None:
    ops.made("workspaces", name="once")
    ops.made("projects", workspace="once", name="p")
    headers = {"Idempotency-Key": "k-1"}
    replies = [
        ops.admin.post("/admin/v1/keys", json={"project": "once/p"}, headers=headers).json() for _ in range(2)
    ]
    assert replies[0] == replies[1] and len(ops.read("keys", workspace="once")["data"]) == 1
    other = ops.admin.post("/admin/v1/keys", json={"project": "once/p", "name": "x"}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_an_empty_idempotency_key_is_refused(ops: Ops) -> None:
    reply = ops.admin.post("/admin/v1/workspaces", json={"name": "no-key"}, headers={"Idempotency-Key": ""})
    assert reply.status_code == 422


@pytest.mark.parametrize(
    "path", ["usage", "receipts", "audit", "collections/export", "adjustments", "events/export"]
)
def test_the_first_and_the_last_moment_there_are_can_be_asked_for(ops: Ops, path: str) -> None:
    everything = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59.999999Z"}
    reply = ops.admin.get(f"/admin/v1/{path}", params=everything)
    assert reply.status_code == 200, reply.text


def in_pages(ops: Ops, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    cursor: dict[str, Any] = {}
    while True:
        page = ops.read(path, limit=2, **query, **cursor)
        assert 1 <= len(page["data"]) <= 2
        yield from page["data"]
        if page["next"] is None:
            return
        cursor = {"cursor": page["next"]}


def test_lists_come_in_pages(ops: Ops) -> None:
    for number in range(5):
        ops.made("workspaces", name=f"page-{number}")
        ops.made("projects", workspace="page-0", name=f"p{number}")
        ops.made("keys", project="page-0/p0", name=f"k{number}")
    for path, query in (
        ("workspaces", {}),
        ("projects", {"workspace": "page-0"}),
        ("keys", {"project": "page-0/p0"}),
    ):
        whole = ops.read(path, limit=500, **query)["data"]
        assert len(whole) >= 5 and list(in_pages(ops, path, **query)) == whole
    assert [one["name"] for one in in_pages(ops, "keys", workspace="page-0")] == [f"k{n}" for n in range(5)]


def test_collections_are_listed_and_exported_in_parts(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    ops.made("workspaces", name="owing")
    for number in range(3):
        ops.made("adjustments", kind="adjustment", workspace="owing", usd="0.02", reason=f"fee {number}")
        ops.made("collections", workspace="owing")
    whole = ops.read("collections", workspace="owing")["data"]
    assert len(whole) == 3 and list(in_pages(ops, "collections", workspace="owing")) == whole
    for format in ("csv", "jsonl"):
        export = {"format": format}
        at_once = ops.admin.get("/admin/v1/collections/export", params=export).text
        with monkeypatch.context() as patched:
            patched.setattr(money_routes, "MOST", 1)
            assert ops.admin.get("/admin/v1/collections/export", params=export).text == at_once
        assert all(at_once.count(one["id"]) == 1 for one in whole)


def test_a_page_reads_no_more_rows_than_it_shows(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    ops.made("workspaces", name="short")
    for number in range(4):
        ops.made("projects", workspace="short", name=f"p{number}")
        ops.made("keys", project=f"short/p{number}")
    read: list[int] = []
    counted = {name: getattr(account_sql, name) for name in ("all_workspaces", "all_projects")}
    counted["all_keys"] = key_sql.all_keys
    for name, whole in counted.items():
        module = key_sql if name == "all_keys" else account_sql

        def counts(*given: Any, whole: Any = whole, **named: Any) -> Any:
            found = whole(*given, **named)
            read.append(len(found))
            return found

        monkeypatch.setattr(module, name, counts)
    assert ops.read("keys", limit=1, workspace="short")["next"] is not None
    assert read and max(read) <= 2
    assert ops.read("workspaces", limit=1)["next"] is not None
    assert max(read) <= 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("POST", "workspaces", {"name": "a/b"}, 422, None),
        ("POST", "workspaces", {"name": "x", "budget": 1}, 422, "budget"),
        ("POST", "workspaces", {"name": "x", "spend_limit_usd": -1}, 422, "spend_limit_usd"),
        ("POST", "keys", {"project": "no/body"}, 404, None),
        ("PATCH", "keys/nothing", {}, 404, None),
        ("PATCH", "keys/pith_x", {}, 404, None),
        ("POST", "projects", {"workspace": "errors", "name": "p", "compression": {"x": 1}}, 422, None),
        ("GET", "statements/errors/2026-13", None, 422, None),
        ("GET", "usage?by=nothing", None, 422, "by.0"),
        ("GET", "usage?by=day&savings=true", None, 422, None),
        ("GET", "usage?since=0001-01-01T00:00:00%2B14:00", None, 422, "since"),
        ("GET", "receipts?until=9999-12-31T23:59:59-12:00", None, 422, "until"),
        ("GET", "audit?since=0001-01-01T00:00:00%2B14:00", None, 422, "since"),
        ("GET", "collections/export?since=0001-01-01T00:00:00%2B14:00", None, 422, "since"),
        ("GET", "adjustments?since=0001-01-01T00:00:00%2B14:00", None, 422, "since"),
        ("GET", "events/export?until=9999-12-31T23:59:59-12:00", None, 422, "until"),
        ("GET", "events/export?limit=10001", None, 422, "limit"),
        ("GET", "usage?limit=10001", None, 422, "limit"),
        ("GET", "usage?by=person&by=key", None, 422, None),
        ("GET", "usage?by=person&by=tag", None, 422, None),
        ("GET", "usage?by=tag&savings=true", None, 422, None),
        ("GET", "usage?project=books/p&savings=true", None, 422, None),
        ("GET", "events/export?workspace=errors&cursor=x", None, 422, None),
        ("POST", "keys", {"project": "x/y", "expires_at": "0001-01-01T00:00:00+14:00"}, 422, "expires_at"),
        ("GET", "workspaces?limit=501", None, 422, "limit"),
        ("GET", "workspaces?cursor=nothing", None, 404, None),
        ("POST", "spool/nothing/retry", None, 404, None),
        ("POST", "adjustments", {"kind": "credit", "reason": "r"}, 422, None),
        ("POST", "adjustments", {"kind": "refund", "reason": "r"}, 422, None),
        ("POST", "adjustments", {"kind": "refund", "reason": "r", "request_id": "x"}, 422, None),
        (
            "POST",
            "adjustments",
            {"kind": "refund", "reason": "r", "request_id": "x", "workspace": "errors"},
            404,
            None,
        ),
        ("PUT", "budgets", {"period": "day", "limit_usd": 1}, 422, None),
        ("PUT", "budgets", {"workspace": "a", "key": "b", "period": "day", "limit_usd": 1}, 422, None),
        ("PUT", "budgets", {"workspace": "errors", "period": "minute", "limit_usd": 1}, 422, "period"),
        ("PUT", "budgets", {"workspace": "nobody", "period": "day", "limit_usd": 1}, 404, None),
        (
            "PUT",
            "budgets",
            {"workspace": "errors", "period": "day", "limit_usd": 1, "at_end": "model:"},
            422,
            "at_end",
        ),
        (
            "PUT",
            "budgets",
            {"workspace": "errors", "period": "day", "limit_usd": 1, "land_from_percent": 80},
            422,
            None,
        ),
        (
            "PUT",
            "budgets",
            {"workspace": "errors", "person": True, "period": "day", "limit_usd": 1},
            422,
            None,
        ),
        ("PATCH", "workspaces/errors", {"time_zone": "Mars/Olympus"}, 422, None),
        ("DELETE", "budgets/nothing", None, 404, None),
        ("POST", "webhooks", {"url": "ftp://x"}, 422, None),
        ("POST", "webhooks", {"url": "https://x.example", "events": ["y"]}, 422, "events.0"),
        ("POST", "webhooks", {"url": "https://x.example", "workspace": "nobody"}, 404, None),
        ("DELETE", "webhooks/nothing", None, 404, None),
        ("POST", "webhooks/deliveries/nothing/redeliver", {}, 404, None),
        ("GET", "webhooks/deliveries?state=lost", None, 422, "state"),
        ("POST", "reconciliations", {"whole": True}, 422, "whole"),
        # A number is no moment: `since=2026` was 34 minutes after 1970 began.
        ("GET", "usage?since=2026", None, 422, "since"),
        ("GET", "receipts?until=0.5", None, 422, "until"),
        ("PATCH", "keys/pk-nothing", {"expires_at": 4e9}, 422, "expires_at"),
        ("PATCH", "workspaces/errors", {"spend_limit_usd": "1_0"}, 422, "spend_limit_usd"),
        ("PATCH", "workspaces/errors", {"spend_limit_usd": "1e3"}, 422, "spend_limit_usd"),
        ("PATCH", "workspaces/errors", {"billing_enabled": 0}, 422, "billing_enabled"),
        ("POST", "reconciliations", {"rebuild": 1}, 422, "rebuild"),
        ("GET", "nothing", None, 404, None),
    ],
)
def test_errors_have_the_contracts_shape(
    ops: Ops, method: str, path: str, body: Any, status: int, param: str | None
) -> None:
    ops.admin.post("/admin/v1/workspaces", json={"name": "errors"})
    reply = ops.admin.request(method, f"/admin/v1/{path}", json=body)
    assert reply.status_code == status, reply.text
    assert reply.json().keys() == {"detail", "error"} and reply.json()["error"]["param"] == param


def test_the_books_are_read_and_proved(ops: Ops) -> None:
    ops.made("workspaces", name="books")
    month = f"{datetime.now(UTC):%Y-%m}"
    assert ops.read(f"statements/books/{month}")["closing"]["owed_usd"] == "0.00"
    assert ops.read("usage", by=["workspace", "day"]) == {"data": [], "has_more": False}
    csv = ops.admin.get("/admin/v1/usage", params={"format": "csv", "by": "model"}).text
    assert csv.startswith("model,requests,prompt_tokens")
    for path in ("receipts", "collections", "spool", "adjustments"):
        assert ops.read(path, workspace="books")["data"] == []
    assert ops.admin.get("/admin/v1/events/export", params={"workspace": "books"}).text == ""
    assert ops.admin.get("/admin/v1/events/export", params={"cursor": "x"}).status_code == 422
    credit = {"kind": "credit", "workspace": "books", "usd": "2.50", "reason": "goodwill"}
    twice = [
        ops.admin.post("/admin/v1/adjustments", json=credit, headers={"Idempotency-Key": "c-1"}).json()
        for _ in range(2)
    ]
    assert twice[0] == twice[1] and len(ops.read("adjustments", workspace="books")["data"]) == 1
    job = ops.admin.post("/admin/v1/reconciliations").json()

    def ended() -> Any:
        found = ops.read(f"reconciliations/{job['id']}")
        return found if found["state"] != "running" else None

    found = wait_for(ended, timeout_s=60, what="the reconciliation ends")
    assert found["state"] == "done" and found["result"]["clean"] is True


def test_the_parts_of_an_export_are_the_whole(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was made just now is in it.
    monkeypatch.setattr(exporter, "SETTLING_S", -60)
    ops.made("workspaces", name="parts")
    for number in range(5):
        ops.made("adjustments", kind="credit", workspace="parts", usd="0.01", reason=f"r{number}")
    whole = ops.admin.get("/admin/v1/events/export", params={"workspace": "parts"})
    until = whole.headers["x-export-until"]
    assert datetime.fromisoformat(until) > datetime.now(UTC) and whole.text.count("\n") == 5
    parts, query = "", {"workspace": "parts", "until": until}
    while query:
        part = ops.admin.get("/admin/v1/events/export", params={**query, "limit": 2})
        assert part.headers["x-export-until"] == until and part.text.count("\n") <= 2
        parts += part.text
        cursor = part.headers.get("x-export-cursor")
        query = {} if cursor is None else {"cursor": cursor}
    assert parts == whole.text


def test_an_adjustment_of_unknown_outcome_names_the_key_to_ask_again_with(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops.made("workspaces", name="unsure")
    body = {"kind": "credit", "workspace": "unsure", "usd": "1", "reason": "r"}

    async def lost(made: Adjustments, asked: Wanted) -> Adjustment:
        await add(made, asked)
        raise LedgerUnavailable("the answer was lost")

    add = Adjustments._add
    with monkeypatch.context() as patched:
        patched.setattr(Adjustments, "_add", lost)
        reply = ops.admin.post("/admin/v1/adjustments", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "ledger_unavailable")
    key = reply.json()["detail"].rpartition("Idempotency-Key: ")[2]
    again = ops.admin.post("/admin/v1/adjustments", json=body, headers={"Idempotency-Key": key})
    assert again.json()["idempotency_key"] == key
    assert len(ops.read("adjustments", workspace="unsure")["data"]) == 1


def test_limits_of_workspaces_persons_and_tags_are_set_shown_and_lifted(ops: Ops) -> None:
    made = ops.made("workspaces", name="rated", requests_per_day=9, max_in_flight=2)
    assert (made["requests_per_day"], made["max_in_flight"], made["tokens_per_hour"]) == (9, 2, None)
    change = {"requests_per_day": None, "tokens_per_hour": 5}
    changed = ops.admin.patch("/admin/v1/workspaces/rated", json=change).json()
    assert (changed["requests_per_day"], changed["max_in_flight"], changed["tokens_per_hour"]) == (None, 2, 5)
    rates = {"*": {"requests_per_minute": 20}, "support": {"tokens_per_day": 100_000}}
    asked = {**rates, "support": {**rates["support"], "max_in_flight": None}}
    project = ops.made("projects", workspace="rated", name="p", label_rates=asked)
    assert project["label_rates"] == rates
    path = f"/admin/v1/projects/{project['id']}"
    assert ops.admin.patch(path, json={"weight": 2}).json()["label_rates"] == rates
    for wrong in ({"*": {"weight": 2}}, {"*": {"tokens_per_day": 0}}, {"a b": {}}, {"*": 5}):
        assert ops.admin.patch(path, json={"label_rates": wrong}).status_code == 422
    assert ops.admin.patch(path, json={"label_rates": None}).json()["label_rates"] is None


def test_budgets_are_set_changed_listed_and_removed(ops: Ops) -> None:
    ops.made("workspaces", name="frugal", time_zone="Asia/Kolkata")
    project = ops.made("projects", workspace="frugal", name="p")
    asked = {"project": "frugal/p", "period": "day", "limit_usd": "1.5"}
    made, changed = (
        ops.admin.put("/admin/v1/budgets", json={**asked, "limit_usd": limit}).json()
        for limit in ("1.5", "2")
    )
    assert (made["subject"], made["limit_usd"], made["used_usd"]) == (project["id"], "1.5", "0")
    assert made["time_zone"] == "Asia/Kolkata" and made["resets_at"].endswith("T18:30:00+00:00")
    assert changed == {**made, "limit_usd": "2", "remaining_usd": "2"} and made["at_end"] == "refuse"
    lands = {**asked, "at_end": "model:small", "land_from_percent": 80}
    landing = ops.admin.put("/admin/v1/budgets", json=lands).json()
    assert (landing["at_end"], landing["land_from_percent"]) == ("model:small", 80)
    changed = ops.admin.put("/admin/v1/budgets", json={**asked, "limit_usd": "2"}).json()
    assert changed == {**landing, "limit_usd": "2", "remaining_usd": "2"}
    ops.admin.put("/admin/v1/budgets", json={**asked, "period": "total"})
    listed = ops.read("budgets", workspace="frugal")["data"]
    assert [one["period"] for one in listed] == ["day", "total"] and listed[0] == changed
    assert list(in_pages(ops, "budgets", workspace="frugal")) == listed
    assert ops.admin.delete(f"/admin/v1/budgets/{made['id']}").json() == changed
    assert [one["period"] for one in ops.read("budgets", workspace="frugal")["data"]] == ["total"]


def test_webhooks_are_managed_and_what_was_sent_to_them_is_read(ops: Ops) -> None:
    ops.made("workspaces", name="told")
    new = {"url": "https://told.example/hook", "workspace": "told", "events": ["limit.reached"]}
    once = {"Idempotency-Key": "w-1"}
    made = [ops.admin.post("/admin/v1/webhooks", json=new, headers=once).json() for _ in range(2)]
    assert made[0] == made[1] and made[0]["secret"].startswith("whsec_")
    webhook = made[0]["id"]
    of_all = ops.made("webhooks", url="https://all.example/hook")
    assert (of_all["workspace"], of_all["events"]) == (None, [])
    found = ops.read("webhooks", workspace="told")["data"]
    assert found == [{name: value for name, value in made[0].items() if name != "secret"}]
    assert [one["id"] for one in in_pages(ops, "webhooks")] == [webhook, of_all["id"]]
    assert ops.admin.post(f"/admin/v1/webhooks/{webhook}/test").status_code == 202
    (sent,) = ops.read("webhooks/deliveries", webhook=webhook, state="waiting")["data"]
    assert (sent["type"], sent["attempts"], sent["delivered_at"]) == ("webhook.test", 0, None)
    again = ops.admin.post(f"/admin/v1/webhooks/deliveries/{sent['event_id']}/redeliver", json={})
    assert (again.status_code, again.json()["data"][0]["event_id"]) == (202, sent["event_id"])
    assert ops.made(f"webhooks/{webhook}/rotate-secret")["secret"] != made[0]["secret"]
    assert ops.made(f"webhooks/{webhook}/enable")["state"] == "active"
    for one in (webhook, of_all["id"]):
        assert ops.admin.delete(f"/admin/v1/webhooks/{one}").json()["id"] == one
    assert ops.read("webhooks")["data"] == []
    audit = ops.read("audit", workspace="told")["data"]
    actions = ["webhook.add", "webhook.rotate_secret", "webhook.enable", "webhook.remove"]
    assert [entry["action"] for entry in audit if entry["subject"] == webhook] == actions
    assert made[0]["secret"] not in str(audit) and "/hook" not in str(audit)


def test_a_workspace_has_no_more_webhooks_than_it_may(ops: Ops) -> None:
    ops.made("workspaces", name="chatty")
    new = {"url": "https://chatty.example/hook", "workspace": "chatty"}
    for _ in range(ops.settings.webhooks.max_per_workspace):
        ops.made("webhooks", **new)
    refused = ops.admin.post("/admin/v1/webhooks", json=new)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "too_many_webhooks")
    for one in ops.read("webhooks", workspace="chatty")["data"]:
        ops.admin.delete(f"/admin/v1/webhooks/{one['id']}")


def reconciled(ops: Ops, **asked: bool) -> Any:
    job = ops.admin.post("/admin/v1/reconciliations", json=asked).json()

    def ended() -> Any:
        found = ops.read(f"reconciliations/{job['id']}")
        return found if found["state"] != "running" else None

    return wait_for(ended, timeout_s=60, what="the reconciliation ends")


def test_balances_are_rebuilt_and_every_event_is_read_again(ops: Ops) -> None:
    balance = ops.made("workspaces", name="off")
    with sqlite3.connect(ops.settings.state_dir.parent / "pith.db") as connection:
        connection.execute("UPDATE workspaces SET held_nano_usd = 7 WHERE id = ?", [balance["id"]])
    connection.close()
    found = reconciled(ops)
    assert (found["state"], found["result"]["clean"]) == ("done", False)
    rebuilt = reconciled(ops, full=True, rebuild=True)
    assert rebuilt["result"]["clean"] is True
    (difference,) = rebuilt["rebuilt"]
    assert (difference["workspace_id"], difference["figure"]) == (balance["id"], "held")


def test_one_reconciliation_runs_at_a_time_and_requests_go_on_beside_it(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, threads = threading.Event(), set()

    async def held(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        # As what computes for a long time does.
        may_end.wait()
        return await whole(*given)

    whole = reconciling.reconciled
    monkeypatch.setattr(reconciling, "reconciled", held)
    try:
        first, same = (ops.admin.post("/admin/v1/reconciliations").json() for _ in range(2))
        assert (first["id"], first["state"]) == (same["id"], "running")
        other = ops.admin.post("/admin/v1/reconciliations", json={"rebuild": True})
        assert (other.status_code, other.json()["error"]["code"]) == (409, "reconciliation_running")
        assert first["id"] in other.json()["detail"]
        assert ops.read(f"reconciliations/{first['id']}")["state"] == "running"
    finally:
        may_end.set()
    found = wait_for(
        lambda: (job := ops.read(f"reconciliations/{first['id']}"))["state"] != "running" and job,
        timeout_s=60,
        what="the reconciliation ends",
    )
    assert found["state"] == "done" and threads == {"ops-apart"}


def test_a_reconciliation_is_given_up_after_its_time(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    async def endless(*_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(reconciling, "reconciled", endless)
    monkeypatch.setattr(reconciling, "DEADLINE_S", 0.0)
    found = reconciled(ops, rebuild=True)
    assert found["problem"] == "it took longer than 0 s; it is unknown whether balances were rebuilt"
    assert ended.wait(60)


def test_a_port_beyond_loopback_has_no_admin_api_unless_the_file_says_so(tmp_path: Path) -> None:
    def settings(**ops: Any) -> Settings:
        return Settings.model_validate(settings_document(tmp_path, ops=ops))

    assert admin_key_file(settings(host="0.0.0.0")) is None
    assert admin_key_file(settings(admin=False)) is None
    named = tmp_path / "keys"
    assert admin_key_file(settings(host="0.0.0.0", admin=True, admin_key_file=str(named))) == named
    assert named.exists()


def test_the_archive_names_its_months_and_files_and_what_is_due(ops: Ops, tmp_path: Path) -> None:
    nothing = {
        "keep_months": None,
        "folder": str(ops.settings.billing.archive.folder),
        "months": [],
        "due": [],
    }
    assert ops.read("archive") == nothing
    config = of_years(tmp_path, ops={"port": free_port()})
    settings = load_settings(config)
    close = open_ops(settings, CollectorRegistry())
    key = (settings.state_dir / "admin-key").read_text().strip()
    url, headers = f"http://127.0.0.1:{settings.ops.port}", {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=url, headers=headers) as admin:
            admin.event_hooks = {"response": [checked(admin.get("/openapi.json").json())]}
            before = admin.get("/admin/v1/archive").json()
            assert pith(config, "archive").exit_code == 0
            after = admin.get("/admin/v1/archive").json()
    finally:
        close()
    due = [{"month": month, "events": 1, "state": None} for month in ("2025-01", "2025-02")]
    assert (before["months"], before["due"], before["keep_months"]) == ([], due, 2)
    assert [(one["month"], one["state"]) for one in after["months"]] == [
        ("2025-01", "dropped"),
        ("2025-02", "dropped"),
    ]
    assert after["due"] == [] and after["months"][0]["charged_usd"] == "0.00005"
    for (file,) in (one["files"] for one in after["months"]):
        stored = (Path(after["folder"]) / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(stored), sha256(stored).hexdigest())


# Which route does what a command does; those that ask a server, or work on files, have none.
ROUTES_OF = {
    "workspace create": ("post", "workspaces"),
    "workspace list": ("get", "workspaces"),
    "workspace set": ("patch", "workspaces/{workspace}"),
    "workspace revoke": ("post", "workspaces/{workspace}/revoke"),
    "project create": ("post", "projects"),
    "project list": ("get", "projects"),
    "project set": ("patch", "projects/{project}"),
    "project revoke": ("post", "projects/{project}/revoke"),
    "project forget-originals": ("post", "projects/{project}/forget-originals"),
    "key create": ("post", "keys"),
    "key list": ("get", "keys"),
    "key set": ("patch", "keys/{key_id}"),
    "key rotate": ("post", "keys/{key_id}/rotate"),
    "key revoke": ("post", "keys/{key_id}/revoke"),
    "collections list": ("get", "collections"),
    "collections cut": ("post", "collections"),
    "collections mark": ("post", "collections/{collection}/mark"),
    "collections export": ("get", "collections/export"),
    "adjustment credit": ("post", "adjustments"),
    "adjustment adjust": ("post", "adjustments"),
    "adjustment refund": ("post", "adjustments"),
    "adjustment list": ("get", "adjustments"),
    "usage": ("get", "usage"),
    "receipts": ("get", "receipts"),
    "statement": ("get", "statements/{workspace}/{month}"),
    "reconcile": ("post", "reconciliations"),
    "budget set": ("put", "budgets"),
    "budget list": ("get", "budgets"),
    "budget remove": ("delete", "budgets/{budget}"),
    "webhook add": ("post", "webhooks"),
    "webhook list": ("get", "webhooks"),
    "webhook remove": ("delete", "webhooks/{webhook}"),
    "webhook enable": ("post", "webhooks/{webhook}/enable"),
    "webhook rotate-secret": ("post", "webhooks/{webhook}/rotate-secret"),
    "webhook test": ("post", "webhooks/{webhook}/test"),
    "webhook deliveries": ("get", "webhooks/deliveries"),
    "webhook redeliver": ("post", "webhooks/deliveries/{event}/redeliver"),
    "adapter add": ("post", "adapters"),
    "adapter list": ("get", "adapters"),
    "adapter remove": ("delete", "adapters/{adapter}"),
    "audit": ("get", "audit"),
    "export events": ("get", "events/export"),
    "spool list": ("get", "spool"),
    "spool retry": ("post", "spool/{event_id}/retry"),
    "spool drop": ("post", "spool/{event_id}/drop"),
}
READ_ALONE = {
    *("workspaces/{workspace}", "projects/{project}", "keys/{key_id}", "webhooks/{webhook}"),
    *("reconciliations/{job_id}", "archive"),
}
NOT_OVER_HTTP = {
    *("init", "serve", "stop", "drain", "reload", "status", "models", "chat", "mcp", "backup", "restore"),
    *("archive", "config check", "compress", "recount", "tune", "verify"),
    *(f"batch {verb}" for verb in ("submit", "status", "cancel", "output", "list")),
}


def test_every_command_on_the_ledger_has_its_route_and_every_route_its_command(ops: Ops) -> None:
    found = {command for verb in VERBS for command in commands(verb.load(LightGroup))}
    assert found - NOT_OVER_HTTP == ROUTES_OF.keys()
    routes = {(method, path.removeprefix("/admin/v1/")) for method, path in routes_of(ops)}
    assert routes - set(ROUTES_OF.values()) == {("get", path) for path in READ_ALONE}
    assert set(ROUTES_OF.values()) <= routes


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("workspaces", "GET, POST"),
        ("keys/x", "GET, PATCH"),
        ("adjustments", "GET, POST"),
        ("reconciliations/x", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_told_all_that_it_has(
    ops: Ops, path: str, methods: str
) -> None:
    reply = ops.admin.request("OPTIONS", f"/admin/v1/{path}")
    assert (reply.status_code, reply.headers["Allow"]) == (405, methods)
