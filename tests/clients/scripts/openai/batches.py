"""A batch of the `openai` package from its upload to its output."""

import io
import json
import os
import time

from openai import OpenAI

MODEL = os.environ["PITH_CHAT_MODEL"]
DEADLINE_S = 60
client = OpenAI()
lines = [
    {
        "custom_id": f"line-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Say {number}."}],
            "max_tokens": 4,
        },
    }
    for number in range(3)
]
text = "".join(json.dumps(line) + "\n" for line in lines)
uploaded = client.files.create(file=("lines.jsonl", io.BytesIO(text.encode())), purpose="batch")
batch = client.batches.create(
    input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
)
deadline = time.monotonic() + DEADLINE_S
while batch.status not in ("completed", "failed", "expired", "cancelled") and time.monotonic() < deadline:
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
output = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
print(
    json.dumps(
        {
            "bytes": [uploaded.bytes, len(text)],
            "file": client.files.retrieve(uploaded.id).filename,
            "listed": uploaded.id in [each.id for each in client.files.list()],
            "status": batch.status,
            "counts": batch.request_counts.model_dump(),
            "batches": batch.id in [each.id for each in client.batches.list()],
            "ids": sorted(line["custom_id"] for line in output),
            "replies": [line["response"]["body"]["object"] for line in output],
            "deleted": client.files.delete(uploaded.id).deleted,
        }
    )
)
