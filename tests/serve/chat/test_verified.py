"""A sampled chat is scored again after it was answered, and nothing of that reaches its caller or its bill."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from billing.preservation.checks import PreservationCheck, PreservationStore
from models.errors import EngineFailed, EngineRejected
from tests.serve.chat.test_compression import FREE, PASSAGES, agent, asked
from tests.serve.compressing import Compressing
from tests.serve.metrics.readings import grown, of_registry
from tests.serve.served import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALL = {**FREE, "verify": 1}
ENDS = "pith_preservation_checks_total"


async def checks(service: Compressing) -> list[PreservationCheck]:
    """Those of this test's workspace."""
    events = {event["event_id"] for event in await service.events()}
    return [one for one in await PreservationStore(service.database).read() if one.event_id in events]


async def counted(service: Compressing, *replies: Any) -> dict[str, float]:
    """What became of the chats' checks, once that is known of each."""
    before = of_registry(service.registry)
    for reply in replies:
        assert (await reply.run()).status == 200

    def ends() -> dict[str, float]:
        found = grown(before, of_registry(service.registry), ENDS)
        return {name.split('outcome="')[1].split('"')[0]: value for name, value in found.items()}

    await eventually(lambda: sum(ends().values()) == len(replies), "the checks")
    return ends()


@pytest.fixture(autouse=True)
def knobs(service: Compressing) -> Any:
    service.engine.scored.clear()
    yield
    service.engine.fails_with, service.engine.is_ready, service.engine.score_s = None, True, 0.25


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_is_scored_after_both_prompts_and_written(service: Compressing, stream: bool) -> None:
    assert await counted(service, service.chat(agent(), compression=ALL, stream=stream)) == {"scored": 1}
    (whole, reply), (sent, again) = service.engine.scored
    assert whole.messages[2]["content"] == PASSAGES
    assert len(sent.messages[2]["content"]) < 0.4 * len(PASSAGES)
    assert reply == again and len(reply) > 4
    (event,), (check,) = await service.events(), await checks(service)
    assert (check.event_id, check.request_id) == (event["event_id"], "compress")
    assert (check.original_tokens, check.sent_tokens) == (event["original_tokens"], event["prompt_tokens"])
    assert (check.kinds, check.target_ratio, check.keep) == ("tool_text", 0.3, None)
    assert (check.model_id, check.compression_model_id) == ("alpha", "free")
    assert check.scored_tokens == len(reply)
    # As the fake scores: half of the places depend on the prompt.
    assert check.agreeing_tokens == len(reply) // 2
    assert check.nats_per_token == pytest.approx(-10 / check.sent_tokens + 10 / check.original_tokens)


async def test_it_is_billed_to_nobody_and_the_reply_says_nothing_of_it(service: Compressing) -> None:
    plain = (await service.chat(asked(), compression=FREE).run()).json()
    before = len(await service.events())
    client = service.chat(asked(), compression=ALL)
    assert await counted(service, client) == {"scored": 1}
    reply = client.json()
    assert len(await service.events()) == before + 1
    assert reply["service"]["billing"] == plain["service"]["billing"]
    assert reply.keys() == plain.keys() and reply["service"].keys() == plain["service"].keys()
    assert "reply" not in reply


async def test_kinds_are_those_of_the_blocks_that_were_compressed(service: Compressing) -> None:
    rows = (
        '[{"item": 1, "price": 7}' + "".join(f', {{"item": {i}, "price": {i * 7}}}' for i in range(80)) + "]"
    )
    assert await counted(service, service.chat([*agent(rows), *asked()], compression=ALL)) == {"scored": 1}
    (check,) = await checks(service)
    assert check.kinds == "text+tool_json"


async def test_a_chat_whose_prompt_was_not_compressed_is_no_sample(service: Compressing) -> None:
    short = [{"role": "user", "content": "hi"}]
    await service.chat(short, compression=ALL).run()
    await service.chat(asked(), compression={**ALL, "holdout": 1}).run()
    await service.chat(asked(), compression=FREE).run()
    assert [request.keep_reply for request in service.engine.requests] == [0, 0, 0]


async def test_a_projects_share_holds_for_clients_that_know_nothing_of_it(service: Compressing) -> None:
    await service.set_default(**ALL)
    assert await counted(service, service.chat(agent())) == {"scored": 1}


async def test_what_cannot_be_scored_is_counted_by_its_reason(service: Compressing) -> None:
    chat = service.chat
    assert await counted(service, chat(asked(), compression=ALL, n=2)) == {"several_choices": 1}
    service.engine.is_ready = False
    assert await counted(service, chat(asked(), compression=ALL)) == {"unavailable": 1}
    service.engine.is_ready = True
    assert await checks(service) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineFailed("it died"), "unavailable"),
        (EngineRejected("no room", param=None, is_too_long=True), "too_long"),
        (EngineRejected("no cache", param=None), "refused"),
        (RuntimeError("a bug"), "failed"),
    ],
)
async def test_a_failure_of_the_scores_reaches_no_chat(
    service: Compressing, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    async def score(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(service.engine, "score", score)
    assert await counted(service, *(service.chat(asked(), compression=ALL) for _ in range(2))) == {reason: 2}
    assert await checks(service) == []
    assert [event["outcome"] for event in await service.events()] == ["completed"] * 2


async def test_a_prompt_that_is_rendered_otherwise_now_is_not_compared(
    service: Compressing, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = service.engine.score

    async def other(*given: Any) -> Any:
        found = await score(*given)
        return replace(found, prompt_tokens=found.prompt_tokens + 1)

    monkeypatch.setattr(service.engine, "score", other)
    assert await counted(service, service.chat(asked(), compression=ALL)) == {"prompt_differs": 1}


async def test_a_chat_that_fails_is_no_sample(service: Compressing) -> None:
    service.engine.fails_with = EngineFailed("it died")
    assert (await service.chat(asked(), compression=ALL).run()).status == 502
    service.engine.fails_with = None
    assert await counted(service, service.chat(agent(), compression=ALL)) == {"scored": 1}
    assert len(await checks(service)) == 1


async def test_a_check_that_cannot_be_written_is_counted(
    service: Compressing, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    score = service.engine.score

    async def waiting(*given: Any) -> Any:
        started.set()
        await go_on.wait()
        return await score(*given)

    monkeypatch.setattr(service.engine, "score", waiting)
    before = of_registry(service.registry)
    assert (await service.chat(asked(), compression=ALL).run()).status == 200
    await started.wait()
    service.database.is_down = True
    go_on.set()
    lost = 'outcome="not_recorded"'
    try:
        await eventually(
            lambda: any(lost in name for name in grown(before, of_registry(service.registry), ENDS)),
            "its end",
        )
    finally:
        service.database.is_down = False
