"""litellm: the models it finds, completions plain and streamed, tools, embeddings, errors by class."""

import json
import os

import litellm

MODEL = f"openai/{os.environ['PITH_CHAT_MODEL']}"
ASK = [{"role": "user", "content": "Tell me about the river."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def raised(**given: object) -> list[object]:
    try:
        litellm.completion(**{"model": MODEL, "messages": ASK, **given})
    except litellm.exceptions.APIError as error:
        return [type(error).__name__, error.status_code]
    except Exception as error:
        return [type(error).__name__, getattr(error, "status_code", None)]
    raise SystemExit("it did not fail")


plain = litellm.completion(model=MODEL, messages=ASK, temperature=0)
streamed = "".join(
    chunk.choices[0].delta.content or ""
    for chunk in litellm.completion(model=MODEL, messages=ASK, temperature=0, stream=True)
)
called = litellm.completion(model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required")
call = called.choices[0].message.tool_calls[0].function
print(
    json.dumps(
        {
            # Its provider `openai` would ask the host for `/v1/models`, whatever the path of the base URL is.
            "models": litellm.get_valid_models(
                check_provider_endpoint=True,
                custom_llm_provider="anthropic",
                api_base=os.environ["ANTHROPIC_BASE_URL"],
                api_key=os.environ["ANTHROPIC_API_KEY"],
            ),
            "text": plain.choices[0].message.content,
            "usage": plain.usage.total_tokens,
            "streamed": streamed,
            "call": [call.name, sorted(json.loads(call.arguments))],
            "wrong key": raised(api_key="pith_wrong"),
            "wrong model": raised(model="openai/gpt-5"),
            "wrong field": raised(temperature=9),
            "too long": raised(messages=[{"role": "user", "content": "word " * 20000}]),
        }
    )
)
