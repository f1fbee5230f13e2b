"""Uses docs/recipes/langchain_compressor.py on the released langchain-core; prints what it got as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from langchain_compressor import PithCompressor
from langchain_core.documents import Document
from pydantic import SecretStr

QUERY, TEXTS = json.load(sys.stdin)
DOCUMENTS = [
    Document(id=f"d{number}", page_content=text, metadata={"page": number})
    for number, text in enumerate(TEXTS)
]
URL, KEY = os.environ["PITH_URL"], SecretStr(os.environ["PITH_KEY"])


def failure(compressor: PithCompressor) -> str:
    try:
        compressor.compress_documents(DOCUMENTS, QUERY)
    except RuntimeError as error:
        return str(error)
    raise SystemExit("it did not fail")


compressor = PithCompressor(url=URL, api_key=KEY, target_ratio=0.5)
found = compressor.compress_documents(DOCUMENTS, QUERY)
print(
    json.dumps(
        {
            "found": [{"id": one.id, "text": one.page_content, "metadata": one.metadata} for one in found],
            "async": [
                one.page_content for one in asyncio.run(compressor.acompress_documents(DOCUMENTS, QUERY))
            ],
            "empty": len(compressor.compress_documents([], QUERY)),
            "blank": len(compressor.compress_documents([Document(page_content=" ")], QUERY)),
            "shown": repr(compressor),
            "both": failure(PithCompressor(url=URL, api_key=KEY, target_ratio=0.5, keep=0.9)),
            "wrong key": failure(PithCompressor(url=URL, api_key=SecretStr("pith_wrong"))),
            "nowhere": failure(PithCompressor(url="http://127.0.0.1:1", api_key=KEY)),
        }
    )
)
