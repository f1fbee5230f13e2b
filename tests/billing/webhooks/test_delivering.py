"""What a real receiver gets: signed, again until it says 2xx, and once where nothing goes wrong."""

from __future__ import annotations

import asyncio
import socket

import pytest

from billing.webhooks.endpoint import Delivery, pause_after
from billing.webhooks.outbox import TRIED_FOR_S
from billing.webhooks.sender import AllowedAddresses
from tests.billing.webhooks.conftest import Hooks


async def only(hooks: Hooks) -> Delivery:
    (found,) = await hooks.webhooks.deliveries()
    return found


async def test_an_event_arrives_once_signed_and_is_recorded(hooks: Hooks) -> None:
    endpoint, secret = await hooks.webhooks.add(f"{hooks.receiver.url}/hook?token=1")
    sent = await hooks.webhooks.test(endpoint.id)
    await hooks.send()
    await hooks.send()
    (got,) = hooks.receiver.got
    assert got.path == "/hook?token=1" and got.headers["content-type"] == "application/json"
    assert got.is_signed_with(secret) and not got.is_signed_with("whsec_" + "A" * 43 + "=")
    assert got.id == sent.event_id == got.payload["id"]
    assert got.payload["version"] == 1 and got.payload["type"] == "webhook.test"
    assert got.payload["created"] == "2026-11-20T12:00:00.000+00:00"
    found = await only(hooks)
    assert (found.state, found.attempts, found.last_status) == ("delivered", 1, 200)
    assert hooks.results == ["delivered"]


async def test_a_failure_is_tried_again_later_and_later_with_the_same_id(hooks: Hooks) -> None:
    endpoint, secret = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    await hooks.webhooks.test(endpoint.id)
    hooks.receiver.statuses = [500, 404, 302, 299]
    for pause in (0, 10, 20, 40):
        await hooks.later(pause - 1)
        await hooks.send()
        await hooks.later(1)
        await hooks.send()
    assert len(hooks.receiver.of("/hook")) == 4 == len(hooks.receiver.got), "a redirect was followed"
    assert len({(one.id, one.body) for one in hooks.receiver.got}) == 1
    assert all(one.is_signed_with(secret) for one in hooks.receiver.got)
    found = await only(hooks)
    assert (found.state, found.attempts, found.last_status) == ("delivered", 4, 299)
    assert hooks.results == ["refused"] * 3 + ["delivered"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_tries_are_spread_over_days_and_then_given_up(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    sent = await hooks.webhooks.test(endpoint.id)
    hooks.receiver.statuses = [500] * 99
    while (found := await only(hooks)).state == "waiting":
        await hooks.books.at(found.due_at)
        await hooks.send()
    assert found.state == "failed" and 20 <= found.attempts <= 30
    assert TRIED_FOR_S - 6 * 3600 < (found.last_tried_at - found.created_at).total_seconds() <= TRIED_FOR_S
    hooks.receiver.statuses = []
    await hooks.webhooks.redeliver(sent.event_id)
    await hooks.send()
    assert (await only(hooks)).state == "delivered" and hooks.receiver.got[-1].id == sent.event_id


def test_pauses_double_up_to_six_hours_and_are_spread() -> None:
    assert [pause_after(n, 0.5) for n in (1, 2, 3, 40)] == [10, 20, 40, 21_600]
    assert (pause_after(1, 0.0), pause_after(1, 1.0)) == (7.5, 12.5)


async def test_gone_disables_the_webhook(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    for _ in range(2):
        await hooks.webhooks.test(endpoint.id)
    hooks.receiver.statuses = [410]
    await hooks.send()
    await hooks.later(10**5)
    await hooks.send()
    assert len(hooks.receiver.got) == 1
    (found,) = await hooks.webhooks.listed()
    assert (found.state, found.state_reason) == ("disabled", "it answered 410 Gone")
    assert {one.state for one in await hooks.webhooks.deliveries()} == {"cancelled"}
    assert (await hooks.webhooks.enable(endpoint.id)).state == "active"
    await hooks.webhooks.test(endpoint.id)
    await hooks.send()
    assert len(hooks.receiver.got) == 2


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("path", ["/hangs", "/slow-body"])
async def test_a_receiver_that_hangs_is_cut_off_and_delays_nobody(hooks: Hooks, path: str) -> None:
    slow, _ = await hooks.webhooks.add(f"{hooks.receiver.url}{path}")
    quick, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/quick")
    for _ in range(3):
        await hooks.webhooks.test(slow.id)
        await hooks.webhooks.test(quick.id)
    dispatcher = hooks.dispatcher(timeout_s=0.5, places=2, places_of_failing=1)
    await dispatcher.once()
    assert len(hooks.receiver.of("/quick")) == 3
    states = {one.state for one in await hooks.webhooks.deliveries(slow.id)}
    if path == "/slow-body":
        # Its status was all that it had to say.
        assert states == {"delivered"}
    else:
        assert states == {"waiting"} and len(hooks.receiver.of(path)) == 1
        (told,) = [one for one in await hooks.webhooks.deliveries(slow.id) if one.last_error]
        assert told.last_error == "no answer within 0.5 s"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_hangs_takes_no_place_of_what_works(hooks: Hooks) -> None:
    for _ in range(3):
        slow, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/hangs")
        await hooks.webhooks.test(slow.id)
    await hooks.send(timeout_s=0.3, places=3)
    await hooks.later(30)
    quick, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/quick")
    await hooks.webhooks.test(quick.id)
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    hooks.receiver.before = lambda got: got.path == "/quick" and loop.call_soon_threadsafe(arrived.set)
    # Those that hang would take every place of this process for half a minute.
    round_ = asyncio.create_task(hooks.dispatcher(timeout_s=120, places=1, places_of_failing=3).once())
    await asyncio.wait_for(arrived.wait(), 60)
    round_.cancel()
    await asyncio.gather(round_, return_exceptions=True)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_receiver_that_is_not_there_is_tried_again(hooks: Hooks) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint, _ = await hooks.webhooks.add(f"http://127.0.0.1:{taken.getsockname()[1]}/hook")
        await hooks.webhooks.test(endpoint.id)
        await hooks.send()
    found = await only(hooks)
    assert found.state == "waiting" and found.attempts == 1 and found.last_status is None
    assert found.last_error is not None and "refused" in found.last_error.lower()
    assert hooks.results == ["unreachable"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_an_address_that_is_not_allowed_is_never_connected_to(hooks: Hooks) -> None:
    port = hooks.receiver.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"):
        endpoint, _ = await hooks.webhooks.add(f"https://{host}:{port}/hook")
        await hooks.webhooks.test(endpoint.id)
        await hooks.send(allowed=AllowedAddresses())
        (found,) = await hooks.webhooks.deliveries(endpoint.id)
        assert found.last_error is not None and "may not reach" in found.last_error, (host, found.last_error)
        await hooks.webhooks.remove(endpoint.id)
    assert hooks.receiver.got == []


async def test_several_servers_send_each_event_once(hooks: Hooks) -> None:
    endpoints = [(await hooks.webhooks.add(f"{hooks.receiver.url}/{n}"))[0] for n in range(4)]
    for endpoint in endpoints:
        for _ in range(5):
            await hooks.webhooks.test(endpoint.id)
    await asyncio.gather(*(hooks.send() for _ in range(4)))
    assert len(hooks.receiver.got) == 20 == len({one.id for one in hooks.receiver.got})


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_after_a_rotation_both_secrets_sign_for_a_day(hooks: Hooks) -> None:
    endpoint, old = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    _, new = await hooks.webhooks.rotate_secret(endpoint.id)
    for seconds in (0, 86_399, 2):
        await hooks.later(seconds)
        await hooks.webhooks.test(endpoint.id)
        await hooks.send()
    assert [one.is_signed_with(new) for one in hooks.receiver.got] == [True, True, True]
    assert [one.is_signed_with(old) for one in hooks.receiver.got] == [True, True, False]


async def test_a_webhook_that_was_removed_gets_nothing_more(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    await hooks.webhooks.test(endpoint.id)
    await hooks.webhooks.remove(endpoint.id)
    await hooks.send()
    assert hooks.receiver.got == [] and await hooks.webhooks.listed() == []
