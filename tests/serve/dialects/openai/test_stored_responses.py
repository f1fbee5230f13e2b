"""Responses that are kept for a while, and requests that refer to them instead of sending them again."""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from billing.caller import Caller
from models.errors import InvalidField
from serve.dialects.openai.responses.stored_responses import StoredResponses
from serve.originals.originals import Originals, Slice
from tests.serve.served import Client, Gate, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/openai/v1/responses"


@pytest_asyncio.fixture(loop_scope="module")
async def served(service: Served) -> AsyncIterator[Served]:
    served = await service.renewed()
    yield served
    await served.assert_nothing_is_left_open()


async def ask(served: Served, **fields: Any) -> dict[str, Any]:
    client = await served.post(PATH, {"input": "Hi", "max_output_tokens": 3, **fields}).run()
    assert client.status == 200, client.body
    found: dict[str, Any] = client.json() if not fields.get("stream") else closing(client)
    return found


def closing(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.body.decode().split("\ndata: ")[-1])["response"]
    return found


async def refused(served: Served, **fields: Any) -> dict[str, Any]:
    client = await served.post(PATH, {"input": "Hi", **fields}).run()
    assert client.status == 400
    error: dict[str, Any] = client.json()["error"]
    return error


def spoken(served: Served) -> list[tuple[str, str]]:
    """What the engine was given: roles and texts."""
    texts = []
    for message in served.engine.requests[-1].messages:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        texts.append((message["role"], text))
    return texts


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_a_conversation_goes_on_from_its_last_response(served: Served, stream: bool) -> None:
    first = await ask(served, instructions="Be brief.", stream=stream)
    assert first["store"] is True
    second = await ask(served, input="And then?", previous_response_id=first["id"], stream=stream)
    said = [("user", "Hi"), ("assistant", "The quick brown"), ("user", "And then?")]
    # Instructions are of one response alone.
    assert spoken(served) == said
    assert second["previous_response_id"] == first["id"]
    await ask(served, input="Go on.", previous_response_id=second["id"])
    assert spoken(served) == [*said, ("assistant", "The quick brown"), ("user", "Go on.")]


async def test_an_item_stands_for_itself(served: Served) -> None:
    first = await ask(served)
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    second = await ask(
        served, input=[{"role": "user", "content": "Hi"}, reference, {"role": "user", "content": "?"}]
    )
    assert spoken(served) == [("user", "Hi"), ("assistant", "The quick brown"), ("user", "?")]
    # The newest response has what the older one said, so one is read for both.
    last = {"type": "item_reference", "id": second["output"][0]["id"]}
    await ask(served, input=[reference, last])
    assert spoken(served) == [("assistant", "The quick brown")] * 2


async def test_what_is_not_stored_is_refused_by_name(served: Served) -> None:
    kept = await ask(served)
    unkept = await ask(served, store=False)
    assert unkept["store"] is False
    for previous in (unkept["id"], "resp_1", "r" * 64):
        error = await refused(served, previous_response_id=previous)
        assert error["param"] == "previous_response_id" and "stored" in error["message"]
    reference = {"type": "item_reference", "id": unkept["output"][0]["id"]}
    error = await refused(served, input=[{"role": "user", "content": "Hi"}, reference])
    assert error["param"] == "input[1]" and "store: false" in error["message"]
    # Another project's is none.
    stranger = {"Authorization": f"Bearer {await served.new_key()}"}
    body = {"input": "Hi", "previous_response_id": kept["id"]}
    assert (await served.post(PATH, body, headers=stranger).run()).status == 400
    many = [{"type": "item_reference", "id": f"msg_{number:032x}_0"} for number in range(20)]
    assert "not stored" in (await refused(served, input=many))["message"]


class BigOriginal:
    """A fake: whatever is read is a response of one item, of a megabyte."""

    async def read(self, caller: Caller, id: str) -> Slice:
        item = {"id": f"msg_{id.removeprefix('resp_')}_0", "role": "user", "content": "x" * 2**20}
        text = json.dumps({"input": [], "output": [item]})
        return Slice(id, 0, len(text), len(text), text)


async def test_a_few_references_cannot_stand_for_gigabytes() -> None:
    stored = StoredResponses(cast(Originals, BigOriginal()), store_s=60)
    caller = cast(Caller, None)
    reference = {"type": "item_reference", "id": f"msg_{'0' * 32}_0"}
    assert len(await stored.expanded(caller, [reference] * 6, None)) == 6
    with pytest.raises(InvalidField, match="characters together"):
        await stored.expanded(caller, [reference] * 9, None)
    longest = [{"role": "user", "content": "x" * 2**23}]
    assert await stored.keep(caller, longest, {"id": f"resp_{'0' * 32}", "output": []}) is False


async def test_what_cannot_be_kept_is_answered_and_says_so(served: Served) -> None:
    served.engine.sleep = gate = Gate(1)
    client = served.post(PATH, {"input": "Hi", "stream": True})
    running = client.start()
    await gate.reached.wait()
    served.database.is_down = True
    gate.opened.set()
    await running
    served.database.is_down = False
    response = closing(client)
    assert (response["status"], response["store"]) == ("completed", False)
    assert response["service"]["metering"]["persisted"] is False
    assert (await served.ledger.replay_spool()).posted == 1
