"""Cohere's client at its defaults: rerank by its second and its first version, and an error by its class."""

import json
import os

import cohere
from cohere.core.api_error import ApiError

URL, KEY = f"{os.environ['PITH_URL']}/openai", os.environ["OPENAI_API_KEY"]
MODEL = os.environ["PITH_RERANK_MODEL"]
TEXTS = ["The river is long.", "Invoices are due in March.", "The cat sleeps."]
ASK = {"model": MODEL, "query": "When are the invoices due?", "documents": TEXTS}

client = cohere.ClientV2(api_key=KEY, base_url=URL)
found = client.rerank(**ASK, top_n=2)
older = cohere.Client(api_key=KEY, base_url=URL).rerank(**ASK, return_documents=True)
try:
    cohere.ClientV2(api_key="sk-wrong", base_url=URL).rerank(**ASK)
    error = None
except ApiError as refused:
    error = [type(refused).__name__, refused.status_code]
print(
    json.dumps(
        {
            "order": [each.index for each in found.results],
            "scores": [each.relevance_score for each in found.results],
            "older": [each.index for each in older.results],
            "documents": [each.document.text for each in older.results],
            "wrong key": error,
        }
    )
)
