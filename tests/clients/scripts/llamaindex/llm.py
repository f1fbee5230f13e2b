"""LlamaIndex: OpenAILike at its defaults completes, with `is_chat_model` it chats; both streamed."""

import json
import os

from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.openai_like import OpenAILike

MODEL, URL = os.environ["PITH_CHAT_MODEL"], os.environ["OPENAI_BASE_URL"]
KEY = os.environ["OPENAI_API_KEY"]
ASK = [ChatMessage(role="user", content="Tell me about the river.")]
default = OpenAILike(model=MODEL, api_base=URL, api_key=KEY)
chat = OpenAILike(model=MODEL, api_base=URL, api_key=KEY, is_chat_model=True)
completed = default.complete("The river")
print(
    json.dumps(
        {
            "completed": completed.text,
            "streamed": list(default.stream_complete("The river"))[-1].text,
            "default chat": default.chat(ASK).message.role.value,
            "chat": chat.chat(ASK).message.content,
            "chat completed": chat.complete("The river").text,
            "chat streamed": list(chat.stream_chat(ASK))[-1].message.content,
        }
    )
)
