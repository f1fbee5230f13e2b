"""Embeddings of the `openai` package: in base64, which is its default, and as numbers."""

import json
import os

from openai import OpenAI

MODEL = os.environ["PITH_EMBEDDING_MODEL"]
TEXTS = ["The river is long.", "A stream of water flows.", "Invoices are due in March."]
client = OpenAI()
default = client.embeddings.create(model=MODEL, input=TEXTS)
numbers = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
one = client.embeddings.create(model=MODEL, input=TEXTS[0])
vectors = [each.embedding for each in default.data]


def likeness(left: list[float], right: list[float]) -> float:
    norms = sum(a * a for a in left) ** 0.5 * sum(b * b for b in right) ** 0.5
    return sum(a * b for a, b in zip(left, right, strict=True)) / norms


others = (each.embedding for each in numbers.data)
print(
    json.dumps(
        {
            "size": len(vectors[0]),
            "indexes": [each.index for each in default.data],
            "furthest": max(
                abs(a - b)
                for left, right in zip(vectors, others, strict=True)
                for a, b in zip(left, right, strict=True)
            ),
            "alike": likeness(vectors[0], vectors[1]),
            "unlike": likeness(vectors[0], vectors[2]),
            "one": len(one.data),
            "usage": default.usage.model_dump(),
        }
    )
)
