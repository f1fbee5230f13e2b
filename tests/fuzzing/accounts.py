"""Accounts as their owners use them, in any order: made, changed, used, ended and used again, by a machine of
hypothesis's that drives the admin API and the API of customers, each on a port of its own, on one SQLite ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
    run_state_machine_as_test,
)
from prometheus_client import CollectorRegistry

from models.fake_engine import FakeEngine
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.loopback_service import service
from tests.serve.ops.documented import checked

# A key that was changed is as before for so long, and a little: each server keeps what it read for 5 s.
STALE_S = 6.0
RECONCILED_S = 60.0
USD = st.sampled_from(["0", "0.000000001", "0.05", "1", "9000000", 0.5, None])
AMOUNT = st.sampled_from(["0.001", "-0.001", "0", "1000000000", "0.0000000001", None])
RATE = st.sampled_from([1, 10**6, 2**53, None])
NAME = st.text(min_size=1, max_size=12) | st.just("app")
ODD_ID = st.sampled_from(["x", "ws_", "%00", "a%2Fb", "..%2F..", "%F0%9F%98%80", "0" * 200, "%5Bx%5D"])
ROUTES = st.lists(st.sampled_from(["chat", "usage", "files", "batches", "models", "compress"]), max_size=3)
CONTENT = st.sampled_from(
    [
        b"",
        b"{}\n",
        b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}\n',
        b"\xff\n",
    ]
)
# In place of what was not made: what is drawn next must not hang on what a server answered.
NOT_MADE = "none"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}


@dataclass(frozen=True)
class Apis:
    """Both ports. `known`: to each workspace, all ids that are its own."""

    admin: httpx.Client
    public: httpx.Client
    known: dict[str, set[str]] = field(default_factory=dict)


@contextmanager
def both_apis(folder: Path) -> Iterator[Apis]:
    compressor = ReadyModel(local_model())
    with service(folder, FakeEngine(), compressor=compressor) as running:
        ops = running.settings.ops.model_copy(update={"port": free_port()})
        settings = running.settings.model_copy(update={"ops": ops})
        close = open_ops(settings, CollectorRegistry())
        key = (settings.state_dir / "admin-key").read_text().strip()
        headers, url = {"Authorization": f"Bearer {key}"}, f"http://127.0.0.1:{ops.port}"
        try:
            with (
                httpx.Client(base_url=url, headers=headers, timeout=60) as admin,
                httpx.Client(base_url=running.url, timeout=60) as public,
            ):
                admin.event_hooks = {"response": [checked(admin.get("/openapi.json").json())]}
                yield Apis(admin, public)
        finally:
            close()


@dataclass
class Key:
    """A key with whose it is."""

    id: str
    secret: str
    project: str
    workspace: str


class AccountsMachine(RuleBasedStateMachine):
    """No answer is a 5xx or undocumented, none names another workspace's, ended keys open nothing, the books agree."""

    apis: Apis
    asked_in_all = 0
    workspaces: Bundle[str] = Bundle("workspaces")
    projects: Bundle[tuple[str, str]] = Bundle("projects")
    keys: Bundle[Key] = Bundle("keys")
    webhooks: Bundle[str] = Bundle("webhooks")
    files: Bundle[tuple[Key, str]] = Bundle("files")
    batches: Bundle[tuple[Key, str]] = Bundle("batches")
    events: Bundle[str] = Bundle("events")

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, float] = {NOT_MADE: -STALE_S}
        self.asked = 0

    def admin(self, method: str, path: str, body: Any = None, **given: Any) -> Any:
        """The answer's JSON where it is a success, else None."""
        reply = self.apis.admin.request(method, f"/admin/v1/{path}", json=body, **given)
        assert reply.status_code < 500, (method, path, body, reply.text)
        self.asked += 1
        is_json = reply.headers["content-type"] == "application/json"
        return reply.json() if reply.status_code < 300 and is_json else None

    def customer(self, key: Key, method: str, path: str, **given: Any) -> httpx.Response:
        sent_at = time.monotonic()
        headers = {"Authorization": f"Bearer {key.secret}"}
        reply = self.apis.public.request(method, path, headers=headers, **given)
        self.asked += 1
        assert reply.status_code < 500, (method, path, reply.text)
        over = [self.ended[one] for one in (key.id, key.project, key.workspace) if one in self.ended]
        if over and sent_at > min(over) + STALE_S:
            is_refused = reply.status_code in (401, 403) or "too_many_wrong_keys" in reply.text
            assert is_refused, (method, path, reply.status_code, reply.text)
        elif not over:
            assert reply.status_code != 401, (method, path, reply.text)
        others = {
            one for owner, ids in self.apis.known.items() if owner != key.workspace for one in (owner, *ids)
        }
        assert not [one for one in others if one in reply.text], reply.text
        return reply

    # Making.

    @initialize(target=workspaces)
    def the_first_workspace(self) -> str:
        return self.made_workspace({})

    @rule(target=workspaces, spend=USD, month=USD, billed=st.sampled_from([True, False, None]))
    def make_workspace(self, spend: Any, month: Any, billed: Any) -> str:
        body = {"spend_limit_usd": spend, "monthly_limit_usd": month, "billing_enabled": billed}
        return self.made_workspace(body)

    def made_workspace(self, body: dict[str, Any]) -> str:
        key = {"Idempotency-Key": uuid4().hex}
        body = {"name": uuid4().hex[:20], **body}
        made = self.admin("POST", "workspaces", body, headers=key)
        assert made == self.admin("POST", "workspaces", body, headers=key)
        self.apis.known[made["id"]] = {made["name"]}
        return str(made["id"])

    @rule(target=projects, workspace=workspaces, name=NAME, rate=RATE, flight=RATE, metered=st.booleans())
    def make_project(self, workspace: str, name: str, rate: Any, flight: Any, metered: bool) -> Any:
        limits = {"requests_per_minute": rate, "max_in_flight": flight, "metered": metered, "proof": metered}
        made = self.admin("POST", "projects", {"workspace": workspace, "name": name, **limits})
        if made is None:
            return NOT_MADE, workspace
        assert workspace not in self.ended, made
        self.apis.known[workspace].add(made["id"])
        return made["id"], workspace

    @rule(target=keys, project=projects, month=USD, routes=ROUTES | st.none())
    def make_key(self, project: tuple[str, str], month: Any, routes: Any) -> Any:
        body = {"project": project[0], "monthly_limit_usd": month, "allowed_routes": routes}
        return self.new_key(self.admin("POST", "keys", body), project)

    def new_key(self, made: Any, project: tuple[str, str]) -> Any:
        if made is None:
            return Key(NOT_MADE, NOT_MADE, *project)
        assert not {*project} & self.ended.keys(), made
        self.apis.known[project[1]].add(made["id"])
        return Key(made["id"], made["key"], *project)

    @rule(target=keys, key=keys, overlap_s=st.sampled_from([0, 86_400]))
    def rotate_key(self, key: Key, overlap_s: int) -> Any:
        made = self.admin("POST", f"keys/{key.id}/rotate", {"overlap_s": overlap_s})
        if made is not None and overlap_s == 0:
            self.ended.setdefault(key.id, time.monotonic())
        return self.new_key(made, (key.project, key.workspace))

    @rule(
        target=webhooks,
        workspace=workspaces | st.none(),
        url=st.sampled_from(["https://a.example/x", "http://b", "x"]),
    )
    def add_webhook(self, workspace: Any, url: str) -> Any:
        made = self.admin("POST", "webhooks", {"url": url, "workspace": workspace})
        return NOT_MADE if made is None else made["id"]

    # Changing and ending.

    @rule(
        workspace=workspaces | ODD_ID,
        change=st.dictionaries(st.sampled_from(["spend_limit_usd", "monthly_limit_usd"]), USD),
    )
    def change_workspace(self, workspace: str, change: dict[str, Any]) -> None:
        self.admin("PATCH", f"workspaces/{workspace}", change)
        self.admin("GET", f"workspaces/{workspace}")

    @rule(
        project=projects,
        change=st.fixed_dictionaries(
            {},
            optional={
                "requests_per_minute": RATE,
                "weight": RATE,
                "proof": st.booleans(),
                "compression": st.just({}),
            },
        ),
    )
    def change_project(self, project: tuple[str, str], change: dict[str, Any]) -> None:
        self.admin("PATCH", f"projects/{project[0]}", change)
        self.admin("POST", f"projects/{project[0]}/forget-originals")

    @rule(
        key=keys,
        change=st.fixed_dictionaries(
            {}, optional={"spend_limit_usd": USD, "allowed_models": st.just(["alpha"])}
        ),
    )
    def change_key(self, key: Key, change: dict[str, Any]) -> None:
        self.admin("PATCH", f"keys/{key.id}", change)

    @rule(what=st.sampled_from(["workspaces", "projects", "keys"]), key=keys)
    def revoke(self, what: str, key: Key) -> None:
        one = {"workspaces": key.workspace, "projects": key.project, "keys": key.id}[what]
        assert (self.admin("POST", f"{what}/{one}/revoke") is None) == (one == NOT_MADE)
        self.ended.setdefault(one, time.monotonic())

    @rule(webhook=webhooks, what=st.sampled_from(["enable", "rotate-secret", "test"]))
    def use_webhook(self, webhook: str, what: str) -> None:
        self.admin("POST", f"webhooks/{webhook}/{what}")
        for event in (self.admin("GET", f"webhooks/deliveries?webhook={webhook}") or {"data": []})["data"][
            :1
        ]:
            self.admin("POST", f"webhooks/deliveries/{event['event_id']}/redeliver", {})

    @rule(webhook=consumes(webhooks))
    def remove_webhook(self, webhook: str) -> None:
        assert (self.admin("DELETE", f"webhooks/{webhook}") is None) == (webhook == NOT_MADE)
        assert self.admin("POST", f"webhooks/{webhook}/test") is None

    # Money.

    @rule(
        workspace=workspaces, usd=AMOUNT, kind=st.sampled_from(["credit", "adjustment"]), again=st.booleans()
    )
    def adjust(self, workspace: str, usd: Any, kind: str, again: bool) -> None:
        body = {"kind": kind, "workspace": workspace, "usd": usd, "reason": "r"}
        key = {"Idempotency-Key": uuid4().hex}
        made = self.admin("POST", "adjustments", body, headers=key)
        assert not again or made == self.admin("POST", "adjustments", body, headers=key)

    @rule(workspace=workspaces, request=events, usd=AMOUNT)
    def refund(self, workspace: str, request: str, usd: Any) -> None:
        body = {"kind": "refund", "workspace": workspace, "request_id": request, "usd": usd, "reason": "r"}
        self.admin("POST", "adjustments", body)

    @rule(workspace=workspaces, state=st.sampled_from(["paid", "void", "failed", "open"]))
    def collect(self, workspace: str, state: str) -> None:
        self.admin("POST", "collections", {"workspace": workspace})
        for one in (self.admin("GET", f"collections?workspace={workspace}") or {"data": []})["data"]:
            self.admin("POST", f"collections/{one['id']}/mark", {"state": state})

    @rule(workspace=workspaces | ODD_ID, by=st.sampled_from(["key", "model", "day", "x"]))
    def read_books(self, workspace: str, by: str) -> None:
        for path in (
            "usage",
            "audit",
            "receipts",
            "adjustments",
            "projects",
            "keys",
            "webhooks",
            "events/export",
        ):
            more = f"&by={by}" if path == "usage" else ""
            self.admin("GET", f"{path}?workspace={workspace}{more}")
        self.admin("GET", f"statements/{workspace}/2026-11")

    # Using.

    @rule(target=events, key=keys, stream=st.booleans(), dialect=st.sampled_from(["/v1", "/openai/v1"]))
    def chat(self, key: Key, stream: bool, dialect: str) -> Any:
        reply = self.customer(key, "POST", f"{dialect}/chat/completions", json={**CHAT, "stream": stream})
        return reply.headers["x-request-id"]

    @rule(key=keys)
    def compress(self, key: Key) -> None:
        self.customer(
            key, "POST", "/v1/compress", json={"query": "q", "input": "One. Two. Three.", "retain_s": 60}
        )

    @rule(
        key=keys,
        path=st.sampled_from(
            ["usage", "limits", "models", "usage/proof?month=2026-11", "usage?group_by=key"]
        ),
    )
    def read_account(self, key: Key, path: str) -> None:
        self.customer(key, "GET", f"/v1/{path}")

    @rule(target=files, key=keys, content=CONTENT)
    def upload(self, key: Key, content: bytes) -> Any:
        reply = self.customer(
            key, "POST", "/openai/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)}
        )
        return key, reply.json()["id"] if reply.status_code == 200 else NOT_MADE

    @rule(target=batches, key=keys, file=files)
    def make_batch(self, key: Key, file: tuple[Key, str]) -> Any:
        body = {"input_file_id": file[1], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        reply = self.customer(key, "POST", "/openai/v1/batches", json=body)
        assert reply.status_code != 200 or file[0].project == key.project, reply.text
        return key, reply.json()["id"] if reply.status_code == 200 else NOT_MADE

    @rule(key=keys, file=files, how=st.sampled_from(["GET", "DELETE", "content"]))
    def use_file(self, key: Key, file: tuple[Key, str], how: str) -> None:
        path = f"/openai/v1/files/{file[1]}" + ("/content" if how == "content" else "")
        reply = self.customer(key, "GET" if how == "content" else how, path)
        assert reply.status_code != 200 or file[0].project == key.project, reply.text
        self.customer(key, "GET", "/openai/v1/files?limit=3")

    @rule(key=keys, batch=batches, cancels=st.booleans())
    def use_batch(self, key: Key, batch: tuple[Key, str], cancels: bool) -> None:
        path = f"/openai/v1/batches/{batch[1]}" + ("/cancel" if cancels else "")
        reply = self.customer(key, "POST" if cancels else "GET", path)
        assert reply.status_code != 200 or batch[0].project == key.project, reply.text

    def teardown(self) -> None:
        """The books agree."""
        job = self.admin("POST", "reconciliations", {"full": True})
        deadline = time.monotonic() + RECONCILED_S
        while job["state"] == "running":
            assert time.monotonic() < deadline, job
            job = self.admin("GET", f"reconciliations/{job['id']}")
        assert job["state"] == "done" and job["result"]["clean"], job
        type(self).asked_in_all += self.asked


def run_machine(apis: Apis, *, courses: int, steps: int, seed: int | None = None) -> int:
    """Requests that were sent. Without a seed the courses are the same each time."""

    class Machine(AccountsMachine):
        pass

    Machine.apis = apis
    chosen = settings(
        max_examples=courses,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck),
    )
    run = Machine if seed is None else hypothesis_seed(seed)(Machine)
    run_state_machine_as_test(run, settings=chosen)
    return Machine.asked_in_all
