"""Clients of files and batches."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun


@pytest.mark.client("openai", "`files` and `batches`: uploaded, run, read, deleted")
def test_openai_runs_a_batch(client_run: ClientRun) -> None:
    found = client_run("batches.py")
    assert found["bytes"][0] == found["bytes"][1]
    assert found["file"] == "lines.jsonl" and found["listed"] and found["batches"]
    assert found["status"] == "completed"
    assert found["counts"] == {"completed": 3, "failed": 0, "total": 3}
    assert found["ids"] == ["line-0", "line-1", "line-2"]
    assert found["replies"] == ["chat.completion"] * 3
    assert found["deleted"]
