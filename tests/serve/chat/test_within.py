"""Chats of a project with `within`: samples decide their size, a conversation keeps its own, and servers follow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from billing.preservation import sizes
from billing.preservation.checks import PreservationStore
from billing.preservation.sizes import Bound, SizedFor
from billing.usage import now
from compression.build import plain_compressor
from compression.pipeline.compression_model import LocalModel
from compression.pipeline.spec import ModelSpec
from compression.source.token_counter import FakeCounter
from tests.serve.chat.test_compression import agent
from tests.serve.compressing import Compressing
from tests.serve.served import at_rest

pytestmark = pytest.mark.asyncio(loop_scope="module")
WITHIN: dict[str, Any] = {"model": "free", "within": 0.05, "verify": 1}
SENTENCES = (
    "The harbour was quiet in the morning.",
    "Nobody had painted the fence since spring.",
    "A cook from Lyon served soup to the guests.",
    "Trains to the north leave from platform two.",
)
# Of passages that are all alike, the first size would leave nothing out.
RESULT = "\n\n".join(
    [
        *(f"{SENTENCES[number % 4]} Chapter {number} is about birds." for number in range(40)),
        "The warranty of the pump ends after two years.",
        *(f"{SENTENCES[number % 4]} Chapter {number} is about trees." for number in range(20)),
    ]
)
KEYS_ARE_READ_AGAIN = timedelta(seconds=6)


@pytest.fixture(autouse=True)
def calibrated(service: Compressing) -> Iterator[None]:
    plain = service.model.inner
    spec = ModelSpec("lexical", "lexical", "", "")
    service.model.inner = LocalModel(plain_compressor(spec, FakeCounter()), max_waiting=64)
    yield
    service.model.inner = plain


async def step_of(service: Compressing) -> float | None:
    (found,) = await service.accounts.list_projects(service.workspace)
    return found.project.size_step


async def account_after(service: Compressing, *shifts: float) -> Any:
    """The project's account, after these samples of another server."""
    (found,) = await service.accounts.list_projects(service.workspace)
    project = found.project
    of = SizedFor(project.workspace_id, project.id, str(project.compression), Bound("nats", 0.05))
    return await service.database.write(partial(sizes.add, of=of, shifts=shifts, now=now()))


async def step_after(service: Compressing, *shifts: float) -> float:
    """Where the project stands after these samples, which this server knows too."""
    account = await account_after(service, *shifts)
    service.time[0] += KEYS_ARE_READ_AGAIN
    return float(account.step)


def asking(number: int = 0) -> list[dict[str, Any]]:
    """A conversation of its own for each number, with a tool's result."""
    question = {"role": "user", "content": f"No. {number}: when does the warranty of the pump end?"}
    return [question, *agent(RESULT)[1:]]


async def said_of(service: Compressing, number: int = 0, **fields: Any) -> Any:
    """What the reply says of its compression."""
    client = service.chat(asking(number), **fields)
    assert (await client.run()).status == 200
    return client.json()["service"]["compression"]


async def kept_by_conversation(service: Compressing) -> list[Any]:
    """Of twelve conversations: the `keep` of each, or the reason why it went out whole."""
    found = []
    for number in range(12):
        (block,) = (await said_of(service, number))["blocks"]
        found.append(block["receipt"]["keep"] if block["compressed"] else block["reason"])
    return found


async def test_a_new_project_has_the_first_size_and_each_scored_chat_is_a_sample(
    service: Compressing,
) -> None:
    await service.set_default(**WITHIN)
    assert await step_of(service) is None
    said = await said_of(service)
    assert said["status"] == "applied" and said["blocks"][0]["receipt"]["keep"] == 0.99
    await at_rest()
    assert await step_of(service) is not None
    events = {event["event_id"] for event in await service.events()}
    (check,) = [one for one in await PreservationStore(service.database).read() if one.event_id in events]
    assert (check.keep, check.target_ratio) == (0.99, None)
    account = await account_after(service)
    assert (account.samples, account.total) == (1, pytest.approx(check.nats_per_token))


async def test_a_step_changes_the_size_of_some_conversations_and_the_others_keep_theirs(
    service: Compressing,
) -> None:
    await service.set_default(**{**WITHIN, "verify": 1e-12})
    assert await kept_by_conversation(service) == [0.99] * 12
    assert await step_after(service, *[0.0] * 60) == 1.5
    half = await kept_by_conversation(service)
    assert set(half) == {0.99, 0.98}
    assert await kept_by_conversation(service) == half
    assert await step_after(service, *[0.0] * 45) == 2
    assert await kept_by_conversation(service) == [0.98] * 12


async def test_where_too_much_is_lost_chats_go_out_whole_and_say_so(service: Compressing) -> None:
    await service.set_default(**WITHIN)
    assert await step_after(service, 8.0, 8.0) == 0
    said = await said_of(service)
    assert said["status"] == "skipped" and not said["holdout"]
    assert [(block["compressed"], block["reason"]) for block in said["blocks"]] == [(False, "within")]
    assert service.engine.requests[-1].messages[2]["content"] == RESULT
    assert service.engine.requests[-1].keep_reply == 0


async def test_a_size_in_the_request_takes_its_place_and_is_no_sample(service: Compressing) -> None:
    await service.set_default(**WITHIN)
    assert await step_after(service, 8.0, 8.0) == 0
    said = await said_of(service, compression={"target_ratio": 0.3})
    assert said["blocks"][0]["receipt"]["target_ratio"] == 0.3
    await at_rest()
    assert (await account_after(service)).samples == 2


async def test_a_conversation_that_is_held_out_is_no_sample(service: Compressing) -> None:
    await service.set_default(**WITHIN, holdout=1)
    said = await said_of(service)
    assert said["holdout"] is True and said["blocks"][0]["reason"] == "holdout"
    await at_rest()
    assert (await account_after(service)).samples == 0


async def test_messages_that_are_compressed_alone_get_a_size_too(service: Compressing) -> None:
    await service.set_default(**WITHIN)
    for _ in range(2):
        reply = await service.post("/v1/compress", {"messages": asking()}).run()
        assert reply.status == 200
        (block,) = reply.json()["blocks"]
        assert block["receipt"]["keep"] == 0.99
        # The largest, where a chat would go out whole.
        assert await step_after(service, 8.0, 8.0) == 0
