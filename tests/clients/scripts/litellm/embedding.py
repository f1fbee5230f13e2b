"""litellm: an embedding."""

import json
import os

import litellm

reply = litellm.embedding(
    model=f"openai/{os.environ['PITH_EMBEDDING_MODEL']}", input=["The river.", "The sea."]
)
print(
    json.dumps(
        {"sizes": [len(each["embedding"]) for each in reply.data], "tokens": reply.usage.prompt_tokens}
    )
)
