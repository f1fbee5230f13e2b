"""instructor at its default, the TOOLS mode: an object, a list of objects, a partial one as it streams."""

import json
import os

import instructor
from pydantic import BaseModel, Field

MODEL = os.environ["PITH_CHAT_MODEL"]
ASK = [{"role": "user", "content": "Which cities are in Norway?"}]


class City(BaseModel):
    # The tiny model may babble for thousands of tokens before it ends a string.
    name: str = Field(max_length=20)
    is_capital: bool


client = instructor.from_provider(f"openai/{MODEL}")
city, reply = client.chat.completions.create_with_completion(response_model=City, messages=ASK)
partial = list(client.chat.completions.create_partial(response_model=City, messages=ASK))
print(
    json.dumps(
        {
            "mode": client.mode.value,
            "city": city.model_dump(),
            "called": reply.choices[0].message.tool_calls[0].function.name,
            "partial": [len(partial) > 0, partial[-1].model_dump()],
        }
    )
)
