"""Text completions of the `openai` package."""

import json
import os

from openai import OpenAI

MODEL = os.environ["PITH_CHAT_MODEL"]
client = OpenAI()
plain = client.completions.create(model=MODEL, prompt="The river", temperature=0)
streamed = "".join(
    chunk.choices[0].text
    for chunk in client.completions.create(model=MODEL, prompt="The river", temperature=0, stream=True)
)
several = client.completions.create(model=MODEL, prompt=["The river", "The sea"], max_tokens=4)
print(
    json.dumps(
        {
            "text": plain.choices[0].text,
            "streamed": streamed,
            "usage": plain.usage.model_dump(),
            "several": [choice.index for choice in several.choices],
            "tokens": several.usage.completion_tokens,
        }
    )
)
