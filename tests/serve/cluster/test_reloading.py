"""The plan of a reload, from two configurations, and the reload as an operator sees it and callers do not notice it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from billing.books import invariants
from billing.store.database import open_database
from models.fake_engine import FakeEngine
from serve.cluster import reloader
from serve.cluster.reload_plan import HIDDEN, Asked, differences, plan_of
from serve.cluster.replicas.applications import models_of, of_generation, without_generation
from serve.config.paths import ConfigError
from serve.config.settings import Settings
from tests.integration.running import adapter_entry, free_port, wait_for
from tests.serve.cluster.reloading import WAIT_S, FakeProcess, Reloading, reloading
from tests.serve.config import test_adapters as adapters
from tests.serve.served import HI, eventually, model_document, settings_document

LEXICAL = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}
TEXTS = {
    "id": "texts",
    "kind": "embedding",
    "name": "Texts",
    "blurb": "For tests.",
    "context_length": 512,
    "price": {"input_usd_per_mtok": 1},
    "engine": {"kind": "static"},
}


def pair(folder: Path, edit: Callable[[dict[str, Any]], None]) -> tuple[Settings, Settings]:
    """A configuration, and what `edit` makes of it."""
    found = []
    for change in (lambda document: None, edit):
        document = settings_document(folder)
        document["compression"] = {"models": [dict(LEXICAL)]}
        document["models"].append({**TEXTS})
        change(document)
        found.append(Settings.model_validate(document))
    return found[0], found[1]


def set_at(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def edit(document: Any) -> None:
        for key in keys:
            document = document.setdefault(key, {}) if isinstance(document, dict) else document[key]
        document[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "started", "prices_change"),
    [
        (set_at("server", "max_body_bytes", 9999), (), False),
        (set_at("models", 0, "price", "input_usd_per_mtok", "7"), (), True),
        (set_at("models", 0, "capabilities", {"tools": "ignore"}), (), False),
        (set_at("models", 0, "replicas", {"max": 2}), ("model:alpha",), False),
        (set_at("models", 0, "environment", {"A": "1"}), ("model:alpha",), False),
        (set_at("compression", "models", 0, "price_usd_per_mtok_input", 2), (), True),
        (set_at("compression", "models", 0, "max_waiting", 7), ("compress:lexical",), False),
        # It has no processes of its own.
        (set_at("models", 4, "blurb", "Another."), (), False),
        (
            set_at("server", "coalesce_ms", 5),
            ("model:alpha", "model:beta", "model:gamma", "model:delta"),
            False,
        ),
    ],
)
def test_only_what_is_started_with_something_else_is_started_anew(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], started: tuple[str, ...], prices_change: bool
) -> None:
    plan = plan_of(*pair(tmp_path, edit), code="none")
    assert (plan.started, plan.prices_change, plan.refused, plan.removed) == (started, prices_change, (), ())


def test_a_price_that_is_written_in_another_way_is_no_change(tmp_path: Path) -> None:
    plan = plan_of(*pair(tmp_path, set_at("models", 0, "price", "input_usd_per_mtok", "100.00")), code="none")
    assert plan.is_empty


def test_what_may_be_secret_is_not_shown(tmp_path: Path) -> None:
    old, new = pair(tmp_path, set_at("models", 0, "environment", {"HF_TOKEN": "hunter2"}))
    (change,) = differences(old, new)
    assert HIDDEN in str(change) and "hunter2" not in str(change)
    old, new = pair(tmp_path, set_at("billing", "collection_hook", ["/bin/true", "hunter2"]))
    assert "hunter2" not in str(differences(old, new))
    old, new = pair(tmp_path, set_at("billing", "database_url", "postgresql+asyncpg://a:hunter2@h/n"))
    plan = plan_of(old, new, code="none")
    assert plan.refused == ("billing.database_url",) and "hunter2" not in str(plan)


def test_a_model_that_comes_or_goes_is_one_difference(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"][1] = model_document("zeta")

    old, new = pair(tmp_path, edit)
    assert [str(change) for change in differences(old, new)] == [
        "models: alpha, beta, gamma, delta → alpha, zeta, gamma, delta"
    ]
    plan = plan_of(old, new, code="none")
    assert (plan.started, plan.removed) == (("model:zeta",), ("model:beta",))


def test_a_model_whose_id_begins_as_one_that_comes_has_its_differences(tmp_path: Path) -> None:
    def named(document: dict[str, Any], price: str) -> None:
        document["models"][0]["id"] = "a.b"
        document["models"][0]["price"]["input_usd_per_mtok"] = price

    edited = settings_document(tmp_path)
    named(edited, "7")
    before = Settings.model_validate(edited)
    named(edited, "8")
    edited["models"].append(model_document("a"))
    after = Settings.model_validate(edited)
    assert [change.key for change in differences(before, after)] == [
        "models",
        "models.a.b.price.input_usd_per_mtok",
    ]


LOUD = adapters.adapter_document("a")
DEARER = {**LOUD, "price": {**LOUD["price"], "input_usd_per_mtok": "8"}}


@pytest.mark.parametrize(
    ("before", "after", "started"),
    [
        ((), (LOUD,), ("model:alpha",)),
        ((LOUD,), (), ("model:alpha",)),
        ((LOUD,), (adapters.adapter_document("b"),), ("model:alpha",)),
        ((LOUD,), ({**LOUD, "adapter": {"of": "alpha", "source": "./other"}},), ("model:alpha",)),
        ((LOUD,), (adapters.adapter_document("a", of="beta"),), ("model:alpha", "model:beta")),
        ((LOUD,), (DEARER,), ()),
    ],
)
def test_an_adapter_that_comes_goes_or_changes_needs_its_bases_engine_anew(
    before: tuple[Any, ...], after: tuple[Any, ...], started: tuple[str, ...], tmp_path: Path
) -> None:
    old, new = (Settings.model_validate(adapters.document(tmp_path, *each)) for each in (before, after))
    plan = plan_of(old, new, code="none")
    assert (plan.started, plan.removed) == (started, ())


@pytest.mark.parametrize(
    ("before", "after", "started"),
    [
        ((), (LOUD,), ()),
        ((LOUD,), (), ()),
        ((LOUD,), (adapters.adapter_document("b"),), ()),
        ((LOUD,), ({**LOUD, "adapter": {"of": "alpha", "source": "./other"}},), ("model:alpha",)),
        ((), ({**LOUD, "adapter": {"of": "alpha", "source": "acme/loud"}},), ("model:alpha",)),
    ],
)
def test_an_engine_with_room_takes_adapters_while_it_runs(
    before: tuple[Any, ...], after: tuple[Any, ...], started: tuple[str, ...], tmp_path: Path
) -> None:
    room = {"engine": {"max_loras": 2}}
    old, new = (
        Settings.model_validate(adapters.document(tmp_path, *each, **room)) for each in (before, after)
    )
    plan = plan_of(old, new, code="none")
    assert (plan.started, plan.removed) == (started, ())
    assert any(change.key.startswith("models") for change in plan.changes)


def test_the_order_of_models_is_a_difference_without_new_processes(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"][:2] = document["models"][1::-1]

    plan = plan_of(*pair(tmp_path, edit), code="none")
    assert [change.key for change in plan.changes] == ["models"] and plan.started == ()


def test_names_of_generations() -> None:
    assert (of_generation("model:a/b", 1), of_generation("model:a/b", 3)) == ("model:a/b", "model:a/b@3")
    assert without_generation("model:a/b@3") == "model:a/b"
    names = ("model:a@2", "model:a+b/c@2", "compress:b", "ingress@2", "other:c")
    assert [models_of(name) for name in names] == [["a"], ["a", "b/c"], ["b"], [], []]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Reloading]:
    with reloading(tmp_path, free_port()) as found:
        yield found


def rows(server: Reloading, sql: str) -> list[Any]:
    async def read() -> list[Any]:
        database = open_database(server.settings.billing.database_url)
        try:
            return list(await database.read(lambda c: c.execute(text(sql)).all()))
        finally:
            await database.close()

    return asyncio.run(read())


def double_the_price(document: dict[str, Any]) -> None:
    price = document["models"][0]["price"]
    price["output_usd_per_mtok"] = str(2 * int(price["output_usd_per_mtok"]))


@dataclass
class Load:
    """Clients with a connection each, which ask one after the other until they are stopped."""

    server: Reloading
    stop: threading.Event = field(default_factory=threading.Event)
    statuses: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def ask(self, number: int) -> None:
        with self.server.client() as http:
            while not self.stop.is_set():
                body = {"messages": HI, "max_tokens": 6, "stream": bool(number % 2), "model": "alpha"}
                try:
                    reply = http.post("/v1/chat/completions", json=body)
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    return
                self.statuses.append(reply.status_code)

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self.ask, args=[number]) for number in range(4)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()


def test_prices_change_under_load_and_each_charge_is_of_one_version(server: Reloading) -> None:
    with Load(server) as load:
        for _ in range(3):
            server.change(double_the_price)
            outcome = server.reload()
            assert outcome["exit"] == 0, outcome
            # After it: while it ran, requests were of the version before.
            enough = len(load.statuses) + 20
            asyncio.run(eventually(lambda: len(load.statuses) > enough or load.failures, "more requests"))  # noqa: B023
    assert not load.failures and set(load.statuses) == {200}
    charged = rows(
        server,
        "SELECT pricing_version, count(*), min(cost_nano_usd), max(cost_nano_usd) FROM usage_events GROUP BY 1",
    )
    assert sum(count for _, count, _, _ in charged) == len(load.statuses)
    # Two tokens of prompt, six of the reply, whose price was doubled three times.
    due = {version: 2 * 100_000 + 6 * 400_000 * 2 ** (version - 1) for version in (1, 2, 3, 4)}
    assert all(lowest == highest == due[version] for version, _, lowest, highest in charged)
    assert {4} <= {version for version, *_ in charged} and len(charged) >= 2

    async def clean() -> list[Any]:
        database = open_database(server.settings.billing.database_url)
        try:
            return list(await database.read(invariants.differences))
        finally:
            await database.close()

    assert asyncio.run(clean()) == []


def test_who_keeps_a_connection_is_told_that_it_ends_when_its_process_stops(server: Reloading) -> None:
    name = server.reloader.lineup.ingress
    ends = [threading.Thread(target=process.end) for process in server.run.running[name]]
    server.run.running[name] = []
    kept = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=WAIT_S)
    said = []
    with closing(kept):
        while "close" not in said:
            kept.request("GET", "/v1/catalog")
            reply = kept.getresponse()
            assert reply.status == 200 and reply.read()
            said.append(reply.headers.get("connection", ""))
            if len(said) == 1:
                for end in ends:
                    end.start()
            assert len(said) < 10_000
    for end in ends:
        end.join()
    assert len(said) >= 2


def test_who_reads_a_stream_when_its_process_stops_is_told_with_the_next_reply(server: Reloading) -> None:
    name = server.reloader.lineup.ingress
    for process in server.run.running[name]:
        process.end()
    slow = FakeProcess(server.settings, server.folder, FakeEngine(token_s=0.1))
    server.run.running[name] = []
    end = threading.Thread(target=slow.end)
    kept = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=WAIT_S)
    with closing(kept):
        body = {"messages": HI, "max_tokens": 6, "stream": True, "model": "alpha"}
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        kept.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        stream = kept.getresponse()
        assert stream.status == 200 and stream.headers.get("connection") is None and stream.read(1)
        end.start()
        assert stream.read().endswith(b"data: [DONE]\n\n")
        kept.request("GET", "/v1/catalog")
        reply = kept.getresponse()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
    end.join()


def test_a_client_that_keeps_its_connection_meets_the_new_prices_once_the_reload_is_done(
    server: Reloading,
) -> None:
    with server.client() as http:
        assert http.get("/v1/catalog").json()["pricing_version"] == 1
        server.change(double_the_price)
        assert server.reload()["pricing_version"] == 2
        shown = http.get("/v1/catalog").json()
    assert (shown["pricing_version"], shown["models"][0]["output_price_per_mtok"]) == (2, 800)


def test_a_model_is_added_and_another_withdrawn(server: Reloading) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"] = [m for m in document["models"] if m["id"] != "beta"]
        added = model_document("epsilon", engine={"kind": "fake"}, checkpoint="nobody/loads-it")
        document["models"].append(added)

    server.change(edit)
    outcome = server.reload()
    assert (outcome["started"], outcome["removed"]) == (("model:epsilon",), ("model:beta",))
    with server.client() as http:
        answers = [
            http.post(
                "/v1/chat/completions", json={"model": model, "messages": HI, "max_tokens": 2}
            ).status_code
            for model in ("alpha", "epsilon", "beta")
        ]
        unknown = http.post("/v1/chat/completions", json={"model": "zeta", "messages": HI, "max_tokens": 2})
    assert answers == [200, 200, unknown.status_code]
    asyncio.run(eventually(lambda: "model:beta" not in server.run.running, "the end of beta"))
    assert "model:epsilon@2" in server.run.running and "ingress" not in server.run.running


def test_what_changes_of_an_engine_takes_new_processes_and_what_only_the_catalog_shows_does_not(
    server: Reloading,
) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"][1]["context_length"] = 2048
        document["models"][2]["blurb"] = "Another."

    server.change(edit)
    assert server.reload(dry_run=True)["started"] == ("model:beta",)
    assert server.reload()["prices_change"] is False
    assert server.reloader.lineup.places["model:beta"] == "model:beta@2"
    assert server.reloader.lineup.places["model:gamma"] == "model:gamma"
    # No price changed, so there is no new version.
    assert rows(server, "SELECT max(version) FROM price_lists") == [(1,)]


def test_a_limit_of_the_configuration_is_in_force(server: Reloading) -> None:
    server.change(lambda document: document["server"].update(max_body_bytes=1024))
    large = {"model": "alpha", "messages": [{"role": "user", "content": "x" * 2000}], "max_tokens": 2}
    with server.client() as http:
        assert http.post("/v1/chat/completions", json=large).status_code == 200
        assert server.reload()["exit"] == 0
        assert http.post("/v1/chat/completions", json=large).status_code == 422


@pytest.mark.parametrize(
    ("key", "value"),
    [("state_dir", "elsewhere"), ("server.port", 1234), ("ops.port", 9999), ("ray.logical_cpus", 3)],
)
def test_what_only_a_restart_changes_is_refused_by_its_name(server: Reloading, key: str, value: Any) -> None:
    def edit(document: dict[str, Any]) -> None:
        section, _, name = key.rpartition(".")
        (document.setdefault(section, {}) if section else document)[name] = value

    before = server.reloader.lineup
    server.change(edit)
    outcome = server.reload()
    assert outcome["exit"] == 2 and key in outcome["error"] and "restart" in outcome["error"]
    assert server.reloader.lineup is before


def test_a_broken_file_is_refused_as_config_check_does(server: Reloading) -> None:
    server.change(lambda document: document["server"].update(porrt=1))
    outcome = server.reload()
    assert outcome["exit"] == 2 and "server.porrt: unknown key" in outcome["error"]


@pytest.mark.parametrize("broken", ["model:beta@2", "ingress@2"])
def test_where_the_new_does_not_start_the_old_stays_in_force(server: Reloading, broken: str) -> None:
    server.run.broken.add(broken)

    def edit(document: dict[str, Any]) -> None:
        double_the_price(document)
        document["models"][1]["context_length"] = 2048

    server.change(edit)
    outcome = server.reload()
    assert outcome["exit"] == 1 and f"{broken} cannot start" in outcome["error"]
    assert sorted(server.run.running) == [
        "ingress",
        *(f"model:{m}" for m in ("alpha", "beta", "delta", "gamma")),
    ]
    with server.client() as http:
        shown = http.get("/v1/catalog").json()
    assert shown["models"][0]["output_price_per_mtok"] == 400
    # The next one is not in its way.
    server.run.broken.clear()
    assert server.reload()["exit"] == 0


def test_a_model_that_is_away_is_tried_again_and_comes_back(server: Reloading) -> None:
    server.run.broken |= {"model:beta", "model:beta@2"}
    outcome = server.reload()
    # It still cannot start, and nothing else was asked for.
    assert outcome["exit"] == 1 and "model:beta: it is broken" in outcome["error"]
    assert "model:beta" in server.run.running and "ingress@2" not in server.run.running
    server.run.broken.discard("model:beta@3")
    outcome = server.reload()
    assert (outcome["exit"], outcome["started"], outcome["tried_again"]) == (
        0,
        ("model:beta",),
        ("model:beta",),
    )
    wait_for(lambda: "model:beta" not in server.run.running, timeout_s=WAIT_S, what="the old one is gone")
    assert server.reloader.lineup.places["model:beta"] == "model:beta@3"
    assert server.reload()["started"] == ()


def test_a_model_that_is_away_holds_up_no_other_change(server: Reloading) -> None:
    server.run.broken |= {"model:beta", "model:beta@2"}
    server.change(double_the_price)
    assert server.reload()["exit"] == 0
    with server.client() as http:
        assert http.get("/v1/catalog").json()["models"][0]["output_price_per_mtok"] == 800


def test_a_model_that_comes_back_by_itself_is_let_alone(server: Reloading) -> None:
    """What waits for its next start has its room, and there is none beside it."""
    server.run.broken |= {"model:beta", "model:beta@2"}
    server.run.tried_on.add("model:beta")
    server.run.available["CPU"] = server.settings.server.ingress_replicas
    assert server.reload()["started"] == ()
    server.change(double_the_price)
    outcome = server.reload()
    assert (outcome["exit"], outcome.get("started")) == (0, ()), outcome
    assert server.reloader.lineup.places["model:beta"] == "model:beta" in server.run.running
    # Its own change is tried, and may fail as it does.
    server.run.available["CPU"] = 16
    server.change(lambda document: document["models"][1].update(context_length=2048))
    server.run.broken.add("model:beta@3")
    outcome = server.reload()
    assert (outcome["exit"], outcome["tried_again"]) == (0, ("model:beta",))


def test_a_checkpoint_that_is_not_here_keeps_no_reload_from_others(tmp_path: Path) -> None:
    """How large it is nobody can say, so that it would fit nowhere."""
    document = settings_document(tmp_path, nodes=["cpu:16-64GB"])
    for model in document["models"]:
        model["size"] = {"weights_gb": 0.1, "kv_kb_per_token": 1}
    document["models"][1] |= {"size": {}, "checkpoint": str(tmp_path / "gone")}
    settings = Settings.model_validate(document)
    with pytest.raises(ConfigError, match="model:beta does not fit"):
        reloader.require_fit(settings)
    reloader.require_fit(settings, but_for=["model:beta"])


def test_a_broken_adapter_is_refused_where_a_reload_brings_it(server: Reloading, tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        base = document["models"][1]
        base |= {"engine": {"max_loras": 1}, "checkpoint": "embedded:pith-mini"}
        loud = {"id": "loud", "adapter": {"of": base["id"], "source": str(tmp_path / "loud")}}
        document["models"].append({**adapter_entry(tmp_path / "loud"), **loud})

    server.change(edit)
    outcome = server.reload()
    assert outcome["exit"] and "loud/adapter_config.json: cannot be read" in outcome["error"]
    with server.client() as http:
        assert "loud" not in {model["id"] for model in http.get("/v1/catalog").json()["models"]}


@pytest.mark.parametrize("stuck", ["model:beta@2", "ingress@2"])
def test_what_never_starts_is_given_up_in_time_and_leaves_the_old_in_force(
    server: Reloading, stuck: str
) -> None:
    server.run.stuck.add(stuck)
    server.change(lambda document: document["models"][1].update(context_length=2048))
    outcome = server.reload(within_s=0.2)
    assert outcome["exit"] == 1 and f"not running after 0.2 s: {stuck}" in outcome["error"]
    assert "model:beta@2" not in server.run.running and "ingress@2" not in server.run.running
    server.run.stuck.clear()
    assert server.reload()["exit"] == 0


def test_a_server_that_stops_gives_up_a_reload_and_begins_none(server: Reloading) -> None:
    server.run.stuck.add("ingress@2")
    server.change(double_the_price)
    outcomes: list[dict[str, Any]] = []
    reload = threading.Thread(target=lambda: outcomes.append(server.reload()))
    reload.start()
    wait_for(lambda: "ingress@2" in server.run.running, timeout_s=WAIT_S, what="the new HTTP processes")
    server.reloader.close()
    reload.join(WAIT_S)
    (outcome,) = outcomes
    assert outcome["exit"] == 1 and "the server is stopping" in outcome["error"]
    assert "ingress@2" not in server.run.running
    assert "the server is stopping" in server.reload()["error"]


def test_without_room_beside_what_runs_nothing_is_begun(server: Reloading) -> None:
    server.run.available["CPU"] = 1
    server.change(double_the_price)
    outcome = server.reload()
    assert outcome["exit"] == 2 and "2 CPU asked for, 1 free" in outcome["error"]


def test_with_a_node_that_has_other_code_nothing_is_begun(server: Reloading) -> None:
    server.run.nodes = "node b has other code than this machine"
    server.change(double_the_price)
    outcome = server.reload()
    assert outcome["exit"] == 1 and "node b has other code" in outcome["error"]
    assert "ingress@2" not in server.run.running


def test_a_dry_run_says_what_would_change_and_changes_nothing(server: Reloading) -> None:
    said: list[str] = []
    server.change(double_the_price)
    outcome = server.reloader.outcome(Asked("test", dry_run=True), said.append)
    assert outcome["exit"] == 0 and "models.alpha.price.output_usd_per_mtok: 400 → 800" in " ".join(said)
    assert rows(server, "SELECT max(version) FROM price_lists") == [(1,)]
    assert rows(server, "SELECT count(*) FROM audit_log WHERE action LIKE 'server.%'") == [(0,)]


def test_who_reloaded_what_is_in_the_audit_log(server: Reloading) -> None:
    server.change(double_the_price)
    assert server.reload()["exit"] == 0
    ((actor, action, details),) = rows(
        server, "SELECT actor, action, details FROM audit_log WHERE action LIKE 'server.%'"
    )
    assert (actor, action) == ("test", "server.reload")
    assert json.loads(details) == {
        "code": "none",
        "models.alpha.price.output_usd_per_mtok": ["400", "800"],
        "pricing_version": [1, 2],
    }


def test_nothing_is_done_where_nothing_changed(server: Reloading) -> None:
    before = server.reloader.lineup
    assert server.reload()["exit"] == 0
    assert server.reloader.lineup is before


def test_one_reload_at_a_time(server: Reloading) -> None:
    server.change(double_the_price)
    inner: list[dict[str, Any]] = []

    def ask_again(line: str) -> None:
        if not inner:
            inner.append(server.reload())

    outcome = server.reloader.outcome(Asked("test"), ask_again)
    assert outcome["exit"] == 0
    assert inner[0]["exit"] == 2 and "another reload is under way" in inner[0]["error"]


def test_new_code_takes_all_processes_anew_and_http_alone_leaves_the_models(server: Reloading) -> None:
    assert server.reload(code="http")["started"] == ()
    assert len(server.reload(code="all")["started"]) == 4


@pytest.mark.parametrize(
    ("program", "status", "complaint"),
    [("print('9999')", 2, "9999"), ("import nothing_of_that_name", 1, "nothing_of_that_name")],
)
def test_code_of_another_ledger_or_that_cannot_be_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, status: int, complaint: str
) -> None:
    monkeypatch.setattr(reloader, "PROGRAM", program)
    with reloading(tmp_path, free_port(), known=reloader.newest_revision_on_disk) as server:
        before = server.reloader.lineup
        outcome = server.reload(code="http")
        assert outcome["exit"] == status and complaint in outcome["error"]
        assert server.reloader.lineup is before


def test_a_reload_imports_the_code_on_the_disk(tmp_path: Path) -> None:
    with reloading(tmp_path, free_port(), known=reloader.newest_revision_on_disk) as server:
        server.change(double_the_price)
        assert server.reload()["exit"] == 0
