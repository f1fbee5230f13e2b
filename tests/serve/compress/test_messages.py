"""Messages as the JSON that is compressed, and compressions that are given up: ended, and their money given back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compression.source.units import Slice
from compression.workers.pooled_model import PooledModel
from serve.compress.request import canonical
from serve.compress.service import kept_fields, kept_of_messages
from tests.compression.conversation.chats import MESSAGES, text_at
from tests.compression.workers.acting import IN_TURN
from tests.compression.workers.conftest import Acting, acting, is_gone, pid_in, plan, whole_lines
from tests.serve.compressing import DEMO_DEADLINE_S, Compressing, compressing
from tests.serve.served import eventually


@given(MESSAGES)
def test_nothing_is_lost_or_moved_on_the_way_to_json(messages: list[dict[str, Any]]) -> None:
    text = canonical(messages)
    assert json.loads(text) == messages and json.dumps(json.loads(text)) == json.dumps(messages)
    assert "\n" not in text and canonical(json.loads(text)) == text


@given(MESSAGES, st.integers(0, 2000), st.integers(0, 2000))
def test_spans_of_messages_are_of_their_texts(messages: list[dict[str, Any]], one: int, other: int) -> None:
    text = canonical(messages)
    for span in kept_of_messages(text, [Slice(0, len(text))]):
        assert (span["start"], span["end"]) == (0, len(text_at(messages[span["message"]], path_of(span))))
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    for span in kept_of_messages(text, [Slice(start, end)]) if start < end else []:
        part = text_at(messages[span["message"]], path_of(span))[span["start"] : span["end"]]
        # But for escapes, which a slice between any two places may cut.
        assert "\\" in text[start:end] or part in text[start:end]


def path_of(span: dict[str, Any]) -> tuple[int, ...]:
    return tuple(step for step in (span["part"], span["inner"]) if step is not None)


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=60), st.lists(st.integers(0, 60), max_size=8)
)
def test_characters_and_bytes_name_the_same_place(text: str, ends: list[int]) -> None:
    cuts = sorted({min(end, len(text)) for end in ends})
    slices = [Slice(*pair) for pair in zip(cuts[::2], cuts[1::2], strict=False)]
    data = text.encode()
    for span, (start, end) in zip(kept_fields(text, slices[::-1]), slices[::-1], strict=True):
        assert (span["start"], span["end"]) == (start, end)
        assert data[span["bytes"]["start"] : span["bytes"]["end"]].decode() == text[start:end]


@asynccontextmanager
async def processes(served: Compressing, *, deadline_s: float = 60) -> AsyncIterator[Acting]:
    """What stands behind the routes is worker processes that do as the input says."""
    local = served.model.inner
    async with acting(IN_TURN, plan(deadline_s=deadline_s)) as ours:
        served.model.inner = PooledModel(ours.pool, ours.spawner)
        yield ours
    served.model.inner = local


async def test_a_deadline_is_said_and_gives_the_hold_back(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served:
        async with processes(served, deadline_s=0.5) as ours:
            client = served.compress(input=f"spin {tmp_path / 'pid'}")
            running = client.start()
            pid = await pid_in(tmp_path / "pid")
            await running
            error = client.json()["error"]
            assert (client.status, error["code"]) == (503, "compression_timed_out")
            assert "not done within 0.5 s" in error["message"] and client.reply_headers["retry-after"]
            await eventually(lambda: is_gone(pid))
            assert ours.seen.deadlines == 1
        assert await served.events() == []
        await served.assert_nothing_is_left_open()


async def test_a_client_that_leaves_ends_the_work_and_gives_the_hold_back(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served:
        async with processes(served) as ours:
            client = served.compress(input=f"spin {tmp_path / 'pid'}")
            running = client.start()
            pid = await pid_in(tmp_path / "pid")
            client.gone.set()
            await running
            await eventually(lambda: is_gone(pid))
            assert client.sent == [] and ours.seen.reasons == ["cancelled"]
        assert await served.events() == []
        await served.assert_nothing_is_left_open()


async def test_a_demo_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served, processes(served):
        client = await served.demo(input=f"spin {tmp_path / 'pid'}").run()
        assert client.status == 503
        assert f"not done within {DEMO_DEADLINE_S:g} s" in client.json()["error"]["message"]


async def test_items_of_a_batch_that_take_too_long_fail_alone(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served:
        async with processes(served, deadline_s=0.3):
            items = [{"query": "q", "input": f"spin {tmp_path / name}"} for name in ("one", "two")]
            client = await served.batch([*items, {"query": "q", "input": ""}]).run()
            assert client.status == 200
            codes = [result["error"]["code"] for result in client.json()["results"]]
            assert codes == ["compression_timed_out", "compression_timed_out", "invalid_body"]
        await served.assert_nothing_is_left_open()


async def test_a_batch_whose_client_leaves_ends_what_runs_and_begins_nothing_more(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served:
        async with processes(served) as ours:
            client = served.batch([{"query": "q", "input": f"spin {tmp_path / 'pid'}"}] * 9)
            running = client.start()
            pid = await pid_in(tmp_path / "pid")
            client.gone.set()
            await running
            await eventually(lambda: is_gone(pid))
            assert (ours.seen.waiting, ours.seen.running) == (0, 0)
            assert len(whole_lines(tmp_path / "pid")) == 1
        assert await served.events() == []
        await served.assert_nothing_is_left_open()


async def test_a_killed_process_is_a_502_that_costs_nothing(tmp_path: Path) -> None:
    async with compressing(tmp_path) as served:
        async with processes(served):
            client = await served.compress(input=f"die {tmp_path / 'pid'}").run()
            assert (client.status, client.json()["error"]["code"]) == (502, "compressor_failed")
            assert "died" in client.json()["error"]["message"]
        assert await served.events() == []
        await served.assert_nothing_is_left_open()
