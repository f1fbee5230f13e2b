"""Runs the Headroom guardrail of the released litellm, unmodified, as its proxy does before a call; prints what it made
of each conversation as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from fastapi import HTTPException
from litellm.proxy.guardrails.guardrail_hooks.headroom import initialize_guardrail
from litellm.proxy.spend_tracking.compression_savings import extract_compression_saved_tokens
from litellm.types.guardrails import LitellmParams

URL, KEY = os.environ["PITH_URL"], os.environ["PITH_KEY"]


def guardrail(**params: Any) -> Any:
    given = {"api_base": URL, "api_key": KEY, **params}
    settings = LitellmParams(guardrail="headroom", mode="pre_call", default_on=True, **given)
    return initialize_guardrail(settings, {"guardrail_name": "pith", "litellm_params": settings})


async def applied(one: Any, messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """The messages that LiteLLM would send, and what it would write in its spend log."""
    request: dict[str, Any] = {"model": model, "messages": messages, "metadata": {}}
    try:
        found = await one.apply_guardrail(
            inputs={"structured_messages": messages}, request_data=request, input_type="request"
        )
    except HTTPException as error:
        return {"status": error.status_code, "detail": error.detail}
    log = request["metadata"].get("standard_logging_guardrail_information")
    saved = extract_compression_saved_tokens({"guardrail_information": log})
    return {"messages": found["structured_messages"], "log": log, "saved": saved, "tools": found.get("tools")}


async def main() -> None:
    conversations = json.load(sys.stdin)
    one = guardrail()
    print(
        json.dumps(
            {
                "applied": [await applied(one, **each) for each in conversations],
                "named model": await applied(guardrail(model="pith-lexical"), **conversations[0]),
                "wrong key": await applied(guardrail(api_key="pith_wrong"), **conversations[0]),
                "fail open": await applied(
                    guardrail(api_key="pith_wrong", unreachable_fallback="fail_open"), **conversations[0]
                ),
            },
            default=str,
        )
    )


asyncio.run(main())
