"""An adapter is charged as a model of its own: at its price, under its id, and to who may use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.serve.served import PROMPT_TOKENS, model_document, serving

ADAPTER: dict[str, Any] = {
    "id": "loud",
    "name": "Loud",
    "blurb": "An adapter.",
    "adapter": {"of": "alpha", "source": "./loud"},
    "price": {"input_usd_per_mtok": "7000", "output_usd_per_mtok": "9000", "minimum_request_usd": "0"},
}


async def test_an_adapter_is_listed_and_charged_at_its_own_price(tmp_path: Path) -> None:
    async with serving(tmp_path, models=[model_document("alpha"), ADAPTER]) as service:
        served = await service.renewed()
        reply = await served.chat(model="loud").run()
        assert reply.status == 200 and reply.json()["model"] == "loud"
        tokens = reply.json()["usage"]["completion_tokens"]
        (event,) = await served.events()
        assert event.cost_nano_usd == PROMPT_TOKENS * 7_000_000 + tokens * 9_000_000
        usage = (await served.get("/v1/usage?group_by=model").run()).json()
        assert [row["model"] for row in usage["data"]] == ["loud"]
        listed = (await served.get("/openai/v1/models/loud").run()).json()
        assert (listed["root"], listed["parent"]) == ("alpha", "alpha")
        base = (await served.get("/openai/v1/models/alpha").run()).json()
        assert (base["root"], base["parent"]) == ("alpha", None)
        ids = [model["id"] for model in (await served.get("/v1/models").run()).json()]
        assert ids == ["alpha", "loud"]
        await served.assert_nothing_is_left_open()
