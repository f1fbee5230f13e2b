"""The compression routes over real worker processes: what is given up is ended, and its money given back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from compression.workers.pooled_model import PooledModel
from tests.compression.workers.acting import IN_TURN
from tests.compression.workers.conftest import Acting, acting, is_gone, pid_in, plan, whole_lines
from tests.serve.compressing import DEMO_DEADLINE_S, Compressing, compressing
from tests.serve.served import eventually


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
