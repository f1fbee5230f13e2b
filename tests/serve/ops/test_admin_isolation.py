"""Two workspaces beside each other: what an admin route is asked about one shows and changes nothing of the other.
A new route without a case here fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from serve.config.settings import load_settings
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.serve.money.two_workspaces import MINE, THEIRS, Ledgers, two_that_spent
from tests.serve.ops.documented import Document, checked

# A route that names a workspace or what is one's, and its body. `{…}` are ids of the workspace that is named.
NARROWED: dict[str, dict[str, Any] | None] = {
    "GET workspaces/{workspace}": None,
    "PATCH workspaces/{workspace}": {"spend_limit_usd": "7"},
    "POST workspaces/{workspace}/revoke": None,
    "POST projects": {"workspace": MINE, "name": "another"},
    "GET projects?workspace=mine": None,
    "GET projects/{project}": None,
    "PATCH projects/{project}": {"max_in_flight": 2},
    "POST projects/{project}/revoke": None,
    "POST projects/{project}/forget-originals": None,
    "POST keys": {"project": "mine/p"},
    "GET keys?workspace=mine": None,
    "GET keys/{key}": None,
    "PATCH keys/{key}": {"spend_limit_usd": "3", "allowed_routes": ["chat"]},
    "POST keys/{key}/rotate": {"overlap_s": 60},
    "POST keys/{key}/revoke": None,
    "PUT budgets": {"key": "{key}", "period": "day", "limit_usd": "2"},
    "GET budgets?workspace=mine": None,
    "DELETE budgets/{budget}": None,
    "GET usage?workspace=mine&by=project&by=key": None,
    "GET usage?workspace=mine&by=person": None,
    "GET usage?project=mine/p&by=tag": None,
    "GET statements/{workspace}/{month}": None,
    "GET receipts?workspace=mine": None,
    "GET audit?workspace=mine": None,
    "GET collections?workspace=mine": None,
    "POST collections": {"workspace": MINE},
    "POST collections/{collection}/mark": {"state": "paid"},
    "POST adjustments": {"kind": "refund", "event_id": "{event}", "reason": "broken"},
    "GET adjustments?workspace=mine": None,
    "GET events/export?workspace=mine": None,
    "POST webhooks": {"url": "https://mine.example/another", "workspace": MINE},
    "GET webhooks?workspace=mine": None,
    "GET webhooks/{webhook}": None,
    "DELETE webhooks/{webhook}": None,
    "POST webhooks/{webhook}/enable": None,
    "POST webhooks/{webhook}/rotate-secret": None,
    "POST webhooks/{webhook}/test": None,
    "GET webhooks/deliveries?workspace=mine": None,
    "POST webhooks/deliveries/{told}/redeliver": {},
}
OF_ALL = {
    "POST workspaces": "makes a new one",
    "GET adapters": "lists what is offered to all",
    "POST adapters": "offers a model to all",
    "DELETE adapters/{adapter}": "offers it to nobody any more",
    "GET workspaces": "lists all workspaces",
    "GET collections/export": "hands all collections to another program",
    "POST reconciliations": "proves that all books agree",
    "GET reconciliations/{job_id}": "says how that does",
    "GET archive": "says which months of everybody's events are in files",
    "GET spool": "lists what waits of everybody's",
    "POST spool/{event_id}/retry": "moves one event, named by its id, to the workspace that it says",
    "POST spool/{event_id}/drop": "takes out one event, named by its id",
}
# By other names in the document of the routes.
PARAMETERS = {"{key}": "{key_id}", "{told}": "{event}"}

Check = Callable[[httpx.Response], None]


@contextmanager
def admin_of(ledgers: Ledgers, check: Check | None = None) -> Iterator[httpx.Client]:
    settings = load_settings(ledgers.config)
    close = open_ops(settings, CollectorRegistry())
    key = (settings.state_dir / "admin-key").read_text().strip()
    url = f"http://127.0.0.1:{settings.ops.port}"
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
            client.event_hooks = {"response": [check] if check else []}
            yield client
    finally:
        close()


@pytest.fixture
def ledgers(tmp_path: Path) -> Ledgers:
    return asyncio.run(two_that_spent(tmp_path, ops={"port": free_port()}))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Of any of the servers: it takes a second to make."""
    folder = tmp_path_factory.mktemp("documented")
    with admin_of(asyncio.run(two_that_spent(folder, ops={"port": free_port()}))) as admin:
        found: Document = admin.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def check(document: Document) -> Check:
    return checked(document)


def route_of(case: str) -> tuple[str, str]:
    method, path = case.partition("?")[0].split()
    for name, documented in PARAMETERS.items():
        path = path.replace(name, documented)
    return method.lower(), f"/admin/v1/{path}"


def test_every_route_has_a_case(document: Document) -> None:
    paths = document["paths"]
    found = {(method, path) for path, each in paths.items() for method in each if path.startswith("/admin/")}
    assert found == {route_of(case) for case in (*NARROWED, *OF_ALL)}


def test_usage_says_when_there_is_more(ledgers: Ledgers, check: Check) -> None:
    with admin_of(ledgers, check) as admin:
        for limit, has_more in ((1, True), (2, False)):
            for savings in (False, True):
                query = {"by": "workspace", "limit": limit, "savings": savings}
                body = admin.get("/admin/v1/usage", params=query).json()
                assert len(body["data"]) <= limit and (savings or body["has_more"] is has_more)
                assert ("preservation" in body) is savings
            as_csv = admin.get("/admin/v1/usage", params={"limit": limit, "format": "csv"})
            assert as_csv.headers["x-has-more"] == str(has_more).lower()
            assert len(as_csv.text.splitlines()) == 1 + limit


def test_a_refund_by_request_is_of_the_workspace_that_is_named(ledgers: Ledgers, check: Check) -> None:
    body = {"kind": "refund", "request_id": "same", "workspace": MINE, "reason": "broken"}
    with admin_of(ledgers, check) as admin:
        made = admin.post("/admin/v1/adjustments", json=body).json()
    assert made["event_id"] == ledgers.ids[MINE]["event"]


@pytest.mark.parametrize("case", NARROWED)
def test_a_route_about_one_workspace_shows_and_changes_nothing_of_the_other(
    ledgers: Ledgers, check: Check, case: str
) -> None:
    before, mine = ledgers.rows(THEIRS), ledgers.rows(MINE)
    ids = {**ledgers.ids[MINE], "month": f"{datetime.now(UTC):%Y-%m}"}
    method, path = case.format(**ids).split()
    given = NARROWED[case] or {}
    body = {name: value.format(**ids) if isinstance(value, str) else value for name, value in given.items()}
    with admin_of(ledgers, check) as admin:
        reply = admin.request(method, f"/admin/v1/{path}", json=body)
    assert reply.is_success, reply.text
    assert not [word for word in (THEIRS, *ledgers.ids[THEIRS].values()) if word in reply.text]
    assert ledgers.rows(THEIRS) == before
    # A cut finds nothing left to cut.
    assert (ledgers.rows(MINE) == mine) is (method == "GET" or case == "POST collections")


@pytest.mark.parametrize(
    "path", ["projects", "keys", "usage", "receipts", "audit", "collections", "adjustments"]
)
def test_a_workspace_that_is_not_there_is_refused_and_not_taken_for_all(
    ledgers: Ledgers, check: Check, path: str
) -> None:
    with admin_of(ledgers, check) as admin:
        reply = admin.get(f"/admin/v1/{path}", params={"workspace": "nobody"})
    assert reply.status_code == 404 and THEIRS not in reply.text
