"""What the fields of the dialects' requests mean, for `/openapi.json`: as a chat's of that name, or as it is here."""

from typing import Any

from serve.chat.request import ChatCompletionRequest

MEANINGS = {
    "messages": "The conversation, in the dialect's form.",
    "prompt": "A text, a list of token ids, or up to 128 of them.",
    "input": "A text, or items: messages, calls of tools and what they gave, reasoning.",
    "model": "A catalog id. Default: the catalog's first model.",
    "max_tokens": "Most tokens to generate.",
    "max_completion_tokens": "The newer name of `max_tokens`.",
    "max_output_tokens": "Most tokens to generate, reasoning included.",
    "min_tokens": "No end before so many tokens.",
    "n": "How many replies; all are charged.",
    "best_of": "As `n`: no more than are returned can be asked for.",
    "echo": "Whether the prompt comes before what was generated.",
    "suffix": "Not offered: null or empty.",
    "stop": "Texts that end the reply, and are not part of it.",
    "stop_sequences": "Texts that end the reply, and are not part of it.",
    "stream": "True answers with server-sent events.",
    "logprobs": "How many of the likeliest tokens are listed at each position.",
    "continue_final_message": "Whether the reply goes on where the last message, the assistant's, ends.",
    "system": "What comes before the conversation.",
    "instructions": "What comes before the conversation.",
    "tools": "Functions to offer, if the model supports tools.",
    "tool_choice": "Whether a tool is called, and which.",
    "thinking": "Whether the model reasons before its reply.",
    "reasoning": "How much to reason before the reply, if the model supports it.",
    "output_config": "How much effort, and the form of the reply.",
    "structured_outputs": "vLLM's: one of `regex`, `choice`, `grammar` and `json`, which the reply is held to; "
    "`guided_regex` and the others are the same.",
    "text": "The form of the reply: text, or JSON by a schema.",
    "mcp_servers": "Not offered: null or empty.",
    "chat_template_kwargs": "For the model's chat template.",
    "include": "What else the reply has.",
    "metadata": "Names with values, repeated in the reply.",
    "store": "Whether it is kept, to be referred to.",
    "previous_response_id": "A kept response that this one goes on from.",
    "background": "Not offered: false.",
    "truncation": "Without effect: a prompt that does not fit is refused.",
    "max_tool_calls": "Repeated in the reply, and without effect: the client calls the tools.",
    "prompt_cache_key": "Taken, and not used.",
    "safety_identifier": "Taken, and not used.",
    "user": "Taken, and not used.",
}


def with_meanings(schema: dict[str, Any]) -> None:
    """Adds to a schema what its fields do not say themselves."""
    for name, field in schema.get("properties", {}).items():
        same = ChatCompletionRequest.model_fields.get(name)
        said = MEANINGS.get(name) or (same.description if same is not None else None)
        if said and "description" not in field:
            field["description"] = said


def without_default_temperature(schema: dict[str, Any]) -> None:
    """The same for chats, of which the contract's temperature is 0 unless it is given, and a dialect's the engine's."""
    with_meanings(schema)
    temperature = schema["properties"]["temperature"]
    temperature.pop("default", None)
    temperature["description"] = (
        "Randomness of the sampling; 0 takes the likeliest token. Default: the engine's own."
    )
