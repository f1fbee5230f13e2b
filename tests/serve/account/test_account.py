"""`GET /v1/usage` and `GET /v1/limits`, as a customer meets them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.accounts.keys import KeyChange, KeyTerms
from billing.adjustments.adjustments import Adjustments
from billing.caller import ProjectLimits
from billing.ledger.budget_settings import Budgets
from billing.preservation.checks import PreservationStore
from serve.account.route import MAX_WAITING
from tests.billing.preservation.test_checks import check_of
from tests.serve.served import PROMPT_TOKENS, Client, Served, token_cost

COST_USD = token_cost(6) / 10**9
RATES = ProjectLimits(requests_per_minute=5, tokens_per_minute=1000, max_in_flight=4)


RATE_NAMES = (
    *("requests_per_minute", "tokens_per_minute", "max_in_flight"),
    *("requests_per_hour", "requests_per_day", "tokens_per_hour", "tokens_per_day"),
)


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def chatted(served: Served, key: str | None = None, **fields: Any) -> None:
    assert (await served.chat(key=key, **fields).run()).status == 200
    await served.events()


async def asked(served: Served, query: str = "", *, key: str | None = None) -> Any:
    reply = await served.get(f"/v1/usage{query}", key=key).run()
    assert reply.status == 200, reply.body
    return reply.json()


async def limits(served: Served, key: str | None = None) -> Any:
    reply = await served.get("/v1/limits", key=key).run()
    assert reply.status == 200, reply.body
    return reply.json()


async def test_usage_is_the_keys_own_and_that_of_its_project_where_asked(served: Served) -> None:
    _, other = await served.accounts.keys.create(
        f"{served.workspace}/project", "other", now=datetime.now(UTC)
    )
    stranger = await served.new_key()
    began = today()
    for key in (served.key, served.key, other, stranger):
        await chatted(served, key)
    own = await asked(served)
    assert own["object"] == "usage" and own["scope"] == "key" and own["group_by"] == ["day"]
    assert own["total"] == {
        "requests": 2,
        "prompt_tokens": 2 * PROMPT_TOKENS,
        "cached_tokens": 0,
        "completion_tokens": 12,
        "tokens_saved": 0,
        "cost_usd": pytest.approx(2 * COST_USD),
        "written_off_usd": 0.0,
        "saved_usd": 0.0,
        "compression_usd": 0.0,
        "net_saved_usd": 0.0,
    }
    assert sum(row["requests"] for row in own["data"]) == 2 and not own["has_more"]
    assert {row["day"] for row in own["data"]} <= {began, today()}, (
        "one day, or two where midnight came between"
    )
    of_all = await asked(served, "?scope=project&group_by=key,route,model")
    assert {(row["key"], row["route"], row["model"], row["requests"]) for row in of_all["data"]} == {
        ("key", "chat", "alpha", 2),
        ("other", "chat", "alpha", 1),
    }
    assert of_all["total"]["requests"] == 3
    assert all("day" not in row for row in of_all["data"])


async def test_rows_are_bounded_and_the_total_is_of_all(served: Served) -> None:
    for model in ("alpha", "beta", "gamma"):
        await chatted(served, model=model)
    found = await asked(served, "?group_by=model&limit=2")
    assert [row["model"] for row in found["data"]] == ["alpha", "beta"]
    assert (found["has_more"], found["total"]["requests"]) == (True, 3)
    assert (await asked(served, "?group_by="))["data"] == []


async def test_people_and_tags_of_a_project_have_their_budgets(served: Served) -> None:
    project, now = f"{served.workspace}/project", datetime.now(UTC)
    budgets = Budgets(served.database, "test")
    # A tag may look like a person.
    likeness = "psn_0123456789abcdef"
    for period, limit in (("day", 2), ("total", 9)):
        await budgets.set("person", project, period, limit * 10**9, now=now)
    await budgets.set("tag", project, "day", 5 * 10**9, tag="research", now=now)
    for user, tags in (("ada", "research"), ("grace", likeness), ("ada", likeness)):
        await chatted(served, user=user, metadata={"tags": tags})
    people = await asked(served, "?scope=project&group_by=person")
    spent = [
        [(one["period"], one["used_usd"], one["limit_usd"]) for one in row["budgets"]]
        for row in people["data"]
    ]
    each = [(2, "day", 2.0), (2, "total", 9.0), (1, "day", 2.0), (1, "total", 9.0)]
    found = [(period, round(used / COST_USD), limit) for some in spent for period, used, limit in some]
    assert sorted(found) == sorted((period, n, limit) for n, period, limit in each)
    tags = (await asked(served, "?scope=project&group_by=tag"))["data"]
    of_tags = {row["tag"]: [one["tag"] for one in row.get("budgets", ())] for row in tags}
    assert of_tags == {"research": ["research"], likeness: []}
    for query in ("group_by=person,day", "group_by=person&limit=1"):
        rows = (await asked(served, f"?scope=project&{query}"))["data"]
        assert [len(row.get("budgets", ())) for row in rows] == ([2] if "limit" in query else [0] * len(rows))


async def test_a_period_without_usage_is_of_zeros(served: Served) -> None:
    await chatted(served)
    found = await asked(served, "?start=2020-01-01&end=2020-02-01")
    assert (found["data"], found["total"]["requests"], found["total"]["cost_usd"]) == ([], 0, 0.0)


async def test_a_parameter_that_cannot_be_used_is_named_in_the_contracts_shape(served: Served) -> None:
    reply = await served.get("/v1/usage?start=tomorrow").run()
    error = reply.json()["error"]
    assert (reply.status, error["type"], error["param"]) == (422, "invalid_request_error", "query.start")
    assert reply.json()["detail"][0]["loc"] == ["query", "start"]


@pytest.mark.parametrize("path", ["/v1/usage", "/v1/limits"])
async def test_they_need_a_key(served: Served, path: str) -> None:
    assert (await Client(served.api, path).run()).status == 401
    assert (await served.get(path, key=f"pith_{'a' * 16}_{'b' * 43}").run()).status == 403


async def test_limits_of_a_workspace_without_any(served: Served) -> None:
    await chatted(served)
    found = await limits(served)
    assert found["key"] == dict.fromkeys(("total", "month", *RATE_NAMES))
    assert found["project"] == dict.fromkeys(RATE_NAMES) | {"max_in_flight": {"limit": 1}}
    total = found["workspace"]["total"]
    assert (total["limit_usd"], total["remaining_usd"], total["resets_at"]) == (None, None, None)
    assert total["used_usd"] == pytest.approx(COST_USD)


async def test_a_request_over_a_budget_is_refused_and_budgets_are_shown_with_the_limits(
    served: Served,
) -> None:
    budgets, now = Budgets(served.database, "test"), datetime.now(UTC)
    of = f"{served.workspace}/project"
    limit = 10 * token_cost(6)
    key = await served.new_key()
    await budgets.set("workspace", served.workspace, "total", 10**9, now=now)
    await budgets.set("project", of, "week", limit, now=now)
    await chatted(served, max_tokens=6)
    found = {one["scope"]: one for one in (await limits(served))["budgets"]}
    assert found.keys() == {"workspace", "project"} and (await limits(served, key))["budgets"] == []
    for one in found.values():
        assert one["used_usd"] == pytest.approx(COST_USD) and one["held_usd"] == 0
    assert found["workspace"]["resets_at"] is None
    resets_at = datetime.fromisoformat(found["project"]["resets_at"])
    assert now < resets_at <= now + timedelta(days=7) and resets_at.weekday() == 0
    await budgets.set("project", of, "week", token_cost(6), now=now)
    for stream in (False, True):
        refused = await served.chat(max_tokens=6, stream=stream).run()
        assert (refused.status, refused.json()["error"]["code"]) == (402, "quota_exceeded")
        said = f"for each week, which resets at {resets_at:%Y-%m-%dT%H:%M:%S}+00:00 (UTC),"
        assert (
            refused.json()["detail"].startswith("project quota exceeded") and said in refused.json()["detail"]
        )


async def test_what_is_left_of_each_limit_and_when_it_resets(served: Served) -> None:
    key = await served.new_key(limits=RATES, spend_limit_nano_usd=10**9, monthly_limit_nano_usd=5 * 10**8)
    began = datetime.now(UTC)
    await chatted(served, key)
    found = await limits(served, key)
    money = found["workspace"]
    assert money["billing_enabled"] and money["total"]["held_usd"] == 0
    assert money["total"]["remaining_usd"] == pytest.approx(1 - COST_USD)
    assert money["month"]["remaining_usd"] == pytest.approx(0.5 - COST_USD)
    first = (began.replace(day=1) + timedelta(days=32)).replace(day=1)
    assert money["month"]["resets_at"] == f"{first:%Y-%m-01}T00:00:00+00:00"
    rates = found["project"]
    assert (rates["requests_per_minute"]["limit"], rates["requests_per_minute"]["remaining"]) == (5, 4)
    assert rates["tokens_per_minute"]["remaining"] == 1000 - PROMPT_TOKENS - 6
    assert rates["max_in_flight"] == {"limit": 4}


async def test_limits_by_hour_and_day_are_shown_and_a_refusal_tells_of_the_one_that_refuses(
    served: Served,
) -> None:
    of_project = ProjectLimits(requests_per_minute=9, requests_per_day=2, tokens_per_day=1000)
    key = await served.new_key(limits=of_project)
    await served.accounts.keys.change(
        key.split("_")[1], KeyChange({"tokens_per_hour": 500}), now=datetime.now(UTC)
    )
    for _ in range(2):
        reply = await served.chat(key=key).run()
        assert (reply.status, reply.reply_headers["x-ratelimit-limit-requests"]) == (200, "9")
    refused = await served.chat(key=key).run()
    seconds_left = 86_400 - datetime.now(UTC).timestamp() % 86_400
    assert refused.status == 429 and "2 requests a day" in refused.json()["detail"]
    assert refused.reply_headers["x-ratelimit-limit-requests"] == "2"
    assert refused.reply_headers["x-ratelimit-remaining-requests"] == "0"
    assert int(refused.reply_headers["retry-after"]) == pytest.approx(seconds_left, abs=60)
    # Though nothing is left of the day.
    found = await limits(served, key)
    used = 2 * (PROMPT_TOKENS + 6)
    assert found["project"]["requests_per_day"]["remaining"] == 0
    assert found["project"]["requests_per_day"]["reset_s"] == pytest.approx(seconds_left, abs=60)
    assert found["project"]["tokens_per_day"]["remaining"] == 1000 - used
    assert found["project"]["requests_per_minute"]["remaining"] == 7
    assert found["key"]["tokens_per_hour"]["remaining"] == 500 - used


async def test_limits_of_the_workspace_persons_and_tags_refuse_by_name_and_are_shown(served: Served) -> None:
    key = await served.new_key("of-labels")
    await served.accounts.change_workspace("of-labels", {"requests_per_day": 4})
    rates = {"*": {"requests_per_minute": 2}, "support": {"requests_per_hour": 1, "max_in_flight": 3}}
    await served.accounts.change_project("of-labels/project", {"label_rates": rates})
    tagged = {"metadata": {"tags": "support"}}
    told = [
        (reply.status, reply.json().get("detail", ""), reply.reply_headers["x-ratelimit-limit-requests"])
        for labels in (
            {"user": "ada", **tagged},
            {"user": "bob", **tagged},
            {"user": "ada"},
            {"user": "ada"},
            {},
        )
        for reply in [await served.chat(key=key, **labels).run()]
    ]
    assert [(status, limit) for status, _, limit in told] == [
        (200, "2"),
        (429, "1"),
        (200, "2"),
        (429, "2"),
        (200, "4"),
    ]
    assert told[1][1].startswith("tag support rate limit exceeded: 1 requests an hour")
    assert told[3][1].startswith("person rate limit exceeded: 2 requests a minute")
    found = await limits(served, key)
    assert found["workspace"]["requests_per_day"]["remaining"] == 1
    assert found["label_rates"].keys() == rates.keys()
    of_each, of_tag = found["label_rates"]["*"], found["label_rates"]["support"]
    assert (of_each["requests_per_minute"]["limit"], of_each["requests_per_minute"]["remaining"]) == (2, 2)
    assert (of_tag["requests_per_hour"]["remaining"], of_tag["max_in_flight"]) == (0, {"limit": 3})
    assert (await served.chat(key=key).run()).status == 200
    refused = await served.chat(key=key).run()
    assert refused.json()["detail"].startswith("workspace rate limit exceeded: 4 requests a day")


async def test_a_keys_own_limits_are_beside_those_of_its_project(served: Served) -> None:
    terms = KeyTerms(limits=ProjectLimits(requests_per_minute=7), spend_limit_nano_usd=10**9)
    _, key = await served.accounts.keys.create(
        f"{served.workspace}/project", "mine", terms=terms, now=datetime.now(UTC)
    )
    await chatted(served, key)
    await chatted(served)
    own = (await limits(served, key))["key"]
    assert own["total"]["limit_usd"] == 1.0 and own["month"] is None and own["max_in_flight"] is None
    assert own["total"]["remaining_usd"] == pytest.approx(1 - COST_USD)
    assert (own["requests_per_minute"]["limit"], own["requests_per_minute"]["remaining"]) == (7, 6)


async def test_a_credit_is_room_at_once(served: Served) -> None:
    key = await served.new_key(spend_limit_nano_usd=0)
    assert (await served.chat(key=key).run()).status == 402
    caller = await served.accounts.authenticate(key, now=datetime.now(UTC))
    await Adjustments(served.database, actor="test").credit(
        caller.workspace_id, nano_usd=10**9, reason="paid in advance", idempotency_key="k"
    )
    total = (await limits(served, key))["workspace"]["total"]
    assert (total["used_usd"], total["remaining_usd"]) == (-1.0, 1.0)
    await chatted(served, key)


async def test_to_look_at_limits_uses_up_nothing_and_takes_no_place(served: Served) -> None:
    key = await served.new_key(limits=replace(RATES, max_in_flight=1, requests_per_minute=3))
    for _ in range(3):
        found = await limits(served, key)
    assert found["project"]["requests_per_minute"]["remaining"] == 3
    for _ in range(3):
        await chatted(served, key)
    refused = await served.get("/v1/limits", key=key).run()
    # They have a limit of their own, as often a minute as the project may ask for work.
    assert refused.status == 429 and refused.reply_headers["x-ratelimit-limit-requests"] == "3"


async def test_many_reads_of_one_project_at_once_are_refused_and_nobody_elses(served: Served) -> None:
    other = await served.new_key()
    key = await served.new_key(limits=ProjectLimits())
    many = [served.get("/v1/usage", key=key).start() for _ in range(3 * MAX_WAITING)]
    reply = served.get("/v1/usage", key=other).start()
    statuses = [(await one).status for one in many]
    assert set(statuses) == {200, 429} and statuses.count(200) >= MAX_WAITING
    assert (await reply).status == 200
    assert (await served.get("/v1/usage", key=key).run()).status == 200


async def test_a_client_that_leaves_while_it_waits_gives_its_place_back(served: Served) -> None:
    key = await served.new_key(limits=ProjectLimits())
    for _ in range(2 * MAX_WAITING):
        task = served.get("/v1/usage", key=key).start()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert (await served.get("/v1/usage", key=key).run()).status == 200


async def test_while_the_ledger_is_away_they_say_so(served: Served) -> None:
    assert (await served.get("/v1/usage").run()).status == 200
    served.database.is_down = True
    for path in ("/v1/usage", "/v1/limits"):
        reply = await served.get(path).run()
        assert (reply.status, reply.json()["error"]["code"]) == (503, "ledger_unavailable")


async def test_usage_by_model_has_what_compression_changed_in_the_projects_replies(served: Served) -> None:
    caller = await served.accounts.authenticate(served.key, now=datetime.now(UTC))
    stranger = await served.accounts.authenticate(await served.new_key(), now=datetime.now(UTC))
    store = PreservationStore(served.database)
    for payer, nats in ((caller, 0.25), (caller, 0.75), (stranger, 3.0)):
        await store.record(check_of(payer, datetime.now(UTC), model_id="alpha", nats_per_token=nats))
    (row,) = (await asked(served, "?group_by=model"))["preservation"]
    assert (row["model"], row["kind"], row["checked_chats"]) == ("alpha", "text", 2)
    assert row["nats_low"] <= row["nats_per_token"] == 0.5 <= row["nats_high"]
    assert "preservation" not in await asked(served, "?group_by=day")
    assert (await asked(served, "?group_by=model&start=2020-01-01&end=2020-02-01"))["preservation"] == []
