"""Which webhooks may be added, how many, and how long what was sent to them is kept."""

from __future__ import annotations

import asyncio

import pytest

from billing.webhooks import outbox
from billing.webhooks.endpoint import (
    InvalidEndpoint,
    TooManyEndpoints,
    UnknownEndpoint,
    UnknownEvent,
    checked_events,
    checked_url,
)
from billing.webhooks.limit_alerts import tidy
from billing.webhooks.webhooks import Webhooks
from tests.billing.conftest import PEPPER
from tests.billing.webhooks.conftest import Hooks

DAY_S = 86_400


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.com/hook", "must be https"),
        ("http://localhost.example.com/", "must be https"),
        ("ftp://example.com/", "must begin with https"),
        ("https:///hook", "name a host"),
        ("https://user:hunter2@example.com/", "no user"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com:99999/", "url: "),
        ("https://[::1/", "url: "),
        ("https://example.com/ hook", "spaces"),
        ("https://exämple.com/", "ASCII"),
        ("https://example.com/\n", "printable"),
        ("https://example.com/" + "a" * 2048, "2048"),
        ("", "2048"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_words(url: str, says: str) -> None:
    with pytest.raises(InvalidEndpoint, match=r"^url: ") as refused:
        checked_url(url, allow_http=False)
    assert says in str(refused.value) and "hunter2" not in str(refused.value)


def test_http_is_for_loopback_unless_it_is_allowed() -> None:
    for url in ("http://127.0.0.1:9/", "http://localhost/", "http://[::1]/", "https://example.com/?a=b"):
        assert checked_url(url, allow_http=False) == url
    assert checked_url("http://example.com/", allow_http=True)


def test_an_event_type_that_there_is_not_is_refused() -> None:
    assert checked_events(["collection.paid", "limit.reached", "collection.paid"]) == (
        "limit.reached",
        "collection.paid",
    )
    with pytest.raises(InvalidEndpoint, match=r"'limit\.missed' is none of limit\.reached"):
        checked_events(["limit.missed"])


async def test_a_workspace_has_so_many_webhooks_at_most_also_when_they_are_added_at_once(
    hooks: Hooks,
) -> None:
    caller, other = [await hooks.books.new_caller() for _ in range(2)]
    webhooks = Webhooks(hooks.books.database, pepper=PEPPER, actor="test", most=3)
    adding = (webhooks.add("https://a.example/", workspace=caller.workspace_id) for _ in range(8))
    done = await asyncio.gather(*adding, return_exceptions=True)
    assert sum(isinstance(one, TooManyEndpoints) for one in done) == 5
    first, *_ = await webhooks.listed(caller.workspace_id)
    await webhooks.remove(first.id)
    await webhooks.add("https://a.example/", workspace=caller.workspace_id)
    await webhooks.add("https://a.example/", workspace=other.workspace_id)
    await webhooks.add("https://a.example/")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_not_there_is_said_to_be_unknown(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add("https://a.example/")
    await hooks.webhooks.remove(endpoint.id)
    for ref in (endpoint.id, "whe_none", "\0"):
        with pytest.raises(UnknownEndpoint):
            await hooks.webhooks.test(ref)
        with pytest.raises(UnknownEvent):
            await hooks.webhooks.redeliver(ref)


async def test_what_was_sent_is_kept_for_a_month_and_what_waits_for_longer(hooks: Hooks) -> None:
    for path in ("good", "bad"):
        endpoint, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/{path}")
        await hooks.webhooks.test(endpoint.id)
    waiting: list[int] = []
    hooks.receiver.before = lambda got: hooks.receiver.statuses.append(500 if got.path == "/bad" else 200)
    # One at a time, so that each gets the answer that is meant for it.
    await hooks.send(places=1)
    await hooks.later(outbox.KEPT_S - DAY_S)
    await tidy(hooks.books.database, waiting.append)
    assert len(await hooks.webhooks.deliveries()) == 2
    await hooks.later(2 * DAY_S)
    await tidy(hooks.books.database, waiting.append)
    (left,) = await hooks.webhooks.deliveries()
    assert left.state == "waiting" and waiting == [1, 1]
