"""`benchmarks.batches` end to end on a server with a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.batches import arguments, batch_of, measured, report
from benchmarks.load.exchange import Failed
from models.fake_engine import FakeEngine
from serve.batches.validation import asked_of
from tests.serve.batches.running import running_server

SHORT = ["--model", "alpha", "--clients", "2", "--requests", "4", "--tokens", "3", "--line-tokens", "5"]


async def test_each_round_has_the_same_chats_alone_and_beside_a_batch(tmp_path: Path) -> None:
    with running_server(tmp_path, FakeEngine(token_s=0.02)) as (url, key):
        words = [*SHORT, "--lines", "300", "--rounds", "1", "--url", url, "--key", key.read_text()]
        options = arguments(words)
        rounds = await measured(options)
    (only,) = rounds
    assert (len(only.alone_ms), len(only.beside_ms)) == (4, 4) and only.ratio > 0
    as_json, as_text = report(options, {}, rounds).write(tmp_path)
    assert len(json.loads(as_json.read_text())["rounds"]) == 1
    assert "| beside a batch | 4 |" in as_text.read_text()


async def test_a_batch_that_is_over_too_soon_measures_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path, FakeEngine()) as (url, key):
        words = [*SHORT, "--lines", "1", "--rounds", "1", "--url", url, "--key", key.read_text()]
        with pytest.raises(Failed, match="give it more --lines"):
            await measured(arguments(words))


def test_the_lines_are_requests_that_differ() -> None:
    lines = batch_of(arguments([*SHORT, "--lines", "7"])).splitlines()
    asked = [asked_of(line) for line in lines]
    assert len({json.dumps(each.body) for each in asked}) == len({each.custom_id for each in asked}) == 7
