"""What each dialect's routes answer is as the document says it, and their requests are described field by field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.documented_reply import assert_documented
from tests.serve.served import HI, Client, Served

BODIES: dict[str, dict[str, Any]] = {
    "/openai/v1/chat/completions": {"messages": HI, "max_tokens": 6},
    "/openai/v1/completions": {"prompt": "hi", "max_tokens": 6},
    "/openai/v1/responses": {"input": "hi", "max_output_tokens": 6},
    "/anthropic/v1/messages": {"messages": HI, "max_tokens": 6},
    "/anthropic/v1/messages/count_tokens": {"messages": HI},
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_replies_and_errors_have_the_shape_that_is_documented(served: Served) -> None:
    for path, body in BODIES.items():
        for fields, status in (({}, 200), ({"model": "omega"}, 404)):
            client = await served.post(path, {**body, **fields}).run()
            assert client.status == status, (path, client.body)
            await assert_documented(served.api, client)


async def test_every_field_of_a_request_says_what_it_means(served: Served) -> None:
    document = (await Client(served.api, "/openapi.json").run()).json()
    for path in BODIES:
        content = document["paths"][path]["post"]["requestBody"]["content"]
        shape = document["components"]["schemas"][
            content["application/json"]["schema"]["$ref"].split("/")[-1]
        ]
        assert not [name for name, field in shape["properties"].items() if not field.get("description")]
        assert shape["properties"].get("temperature", {}).get("default") is None
