"""Pools of real processes: what is given up is ended, what dies is replaced, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from compression.pipeline.compression_model import JobTerms
from compression.pipeline.errors import CompressionTimedOut, CompressorFailed, CompressorUnavailable
from compression.workers.messages import done_of
from compression.workers.processes import WorkerCannotStart
from tests.compression.workers.acting import BROKEN, IN_TURN, TOGETHER, eventually
from tests.compression.workers.conftest import acting, is_gone, pid_in, plan, whole_lines

ROOT = Path(__file__).parents[3]
NICEST = 19


def niced(by: int) -> int:
    return min(os.nice(0) + by, NICEST)


async def test_a_deadline_ends_the_work_and_another_process_takes_the_next(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        spinning = ours.begin(f"spin {tmp_path / 'pid'}", terms=JobTerms(deadline_s=0.2))
        pid = await pid_in(tmp_path / "pid")
        with pytest.raises(CompressionTimedOut, match=r"not done within 0\.2 s, waiting included"):
            await spinning
        await eventually(lambda: is_gone(pid))
        assert (await ours.order("hello")).pid != pid
        assert (ours.seen.deadlines, ours.seen.reasons) == (1, ["deadline"])


async def test_the_models_own_deadline_holds_whatever_the_terms_say(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan(deadline_s=0.1)) as ours:
        with pytest.raises(CompressionTimedOut, match=r"0\.1 s"):
            await ours.order(f"spin {tmp_path / 'pid'}", terms=JobTerms(deadline_s=60))


async def test_waiting_counts_for_the_deadline_and_ends_no_process(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        spinning = ours.begin(f"spin {tmp_path / 'pid'}")
        pid = await pid_in(tmp_path / "pid")
        with pytest.raises(CompressionTimedOut):
            await ours.order("hello", terms=JobTerms(deadline_s=0.05))
        assert not is_gone(pid) and ours.seen.reasons == [] and ours.seen.deadlines == 1
        spinning.cancel()


async def test_a_caller_that_leaves_ends_the_work(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        spinning = ours.begin(f"spin {tmp_path / 'pid'}")
        pid = await pid_in(tmp_path / "pid")
        spinning.cancel()
        await eventually(lambda: is_gone(pid))
        assert (await ours.order("hello")).pid != pid
        assert ours.seen.reasons == ["cancelled"] and ours.seen.running == 0


async def test_a_process_that_is_killed_fails_its_own_job_alone(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan(small=2)) as ours:
        first = ours.begin(f"spin {tmp_path / 'first'}")
        second = ours.begin(f"spin {tmp_path / 'second'}")
        pid, other = await pid_in(tmp_path / "first"), await pid_in(tmp_path / "second")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CompressorFailed, match="the process that worked on this died"):
            await first
        assert (await ours.order("hello")).text == "hello"
        assert not second.done() and not is_gone(other) and ours.seen.reasons == ["died"]
        second.cancel()


async def test_an_idle_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        pid = (await ours.order("hello")).pid
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: ours.seen.reasons == ["died"])
        assert (await ours.order("hello")).pid != pid


async def test_the_fork_server_is_replaced_too_and_no_request_fails_with_it(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        server = ours.spawner.server_pid
        spinning = ours.begin(f"spin {tmp_path / 'pid'}")
        await pid_in(tmp_path / "pid")
        assert server is not None
        os.kill(server, signal.SIGKILL)
        await eventually(lambda: len(whole_lines(tmp_path / "pid")) == 2)
        assert not spinning.done() and ours.spawner.server_pid != server
        spinning.cancel()
        assert (await ours.order("hello")).text == "hello"


async def test_large_jobs_and_trials_run_apart_and_give_way(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        large = await ours.order("hello", size=1001)
        trial = await ours.order("hello", terms=JobTerms(is_trial=True))
        small = await ours.order("hello", size=1000)
        assert len({message.pid for message in (large, trial, small)}) == 3
        assert [message.niceness for message in (small, large, trial)] == [niced(0), niced(5), niced(7)]


async def test_a_small_job_that_takes_long_makes_way_and_goes_on_among_the_large(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan(longest_s=0.2)) as ours:
        spinning = ours.begin(f"spin {tmp_path / 'pid'}")
        await eventually(lambda: ours.seen.reasons == ["overlong"])
        (tmp_path / "pid").unlink(missing_ok=True)
        assert (await ours.order("hello")).text == "hello"
        pid = await pid_in(tmp_path / "pid")
        assert psutil.Process(pid).nice() == niced(5) and not spinning.done()
        spinning.cancel()
        await eventually(lambda: is_gone(pid))


async def test_megabytes_go_there_and_back_as_they_are() -> None:
    async with acting(IN_TURN, plan()) as ours:
        text = "é\x00\n" * 700_000
        assert (await ours.order(text)).text == text


async def test_a_pool_that_closes_ends_its_processes_and_says_so_to_who_waits(tmp_path: Path) -> None:
    async with acting(IN_TURN, plan()) as ours:
        spinning, waiting = ours.begin(f"spin {tmp_path / 'pid'}"), ours.begin("hello")
        pid, server = await pid_in(tmp_path / "pid"), ours.spawner.server_pid
        await ours.pool.close()
        for task in (spinning, waiting):
            with pytest.raises(CompressorUnavailable):
                await task
        with pytest.raises(CompressorUnavailable):
            await ours.order("hello")
    await eventually(lambda: is_gone(pid))
    assert server is not None and is_gone(server)


async def test_a_program_that_does_not_load_says_why() -> None:
    with pytest.raises(WorkerCannotStart, match="ValueError: no weights at None"):
        async with acting(BROKEN, plan()):
            pass


async def test_a_job_of_several_that_fails_unexpectedly_is_answered_and_ends_no_process() -> None:
    async with acting(TOGETHER, plan(small=4, shared=1)) as ours:
        with pytest.raises(CompressorFailed):
            done_of(await ours.pool.run(b"fail", terms=JobTerms()))
        assert (await ours.begin("go on")).text.strip() == "go on" and ours.seen.reasons == []


async def test_a_process_of_several_jobs_ends_one_without_the_others(tmp_path: Path) -> None:
    async with acting(TOGETHER, plan(small=4, shared=1)) as ours:
        first = ours.begin(f"wait {tmp_path / 'first'}")
        second = ours.begin(f"wait {tmp_path / 'second'}")
        pid = await pid_in(tmp_path / "first")
        assert await pid_in(tmp_path / "second") == pid
        first.cancel()
        await eventually(lambda: ours.seen.running == 1)
        (tmp_path / "second.go").touch()
        assert (await second).pid == pid and ours.seen.reasons == []


async def test_a_process_of_several_jobs_that_does_not_end_one_is_killed_and_the_others_begin_again(
    tmp_path: Path,
) -> None:
    async with acting(TOGETHER, plan(small=4, shared=1), grace_s=0.1) as ours:
        stuck = ours.begin(f"spin {tmp_path / 'stuck'}", terms=JobTerms(deadline_s=0.5))
        innocent = ours.begin(f"wait {tmp_path / 'innocent'}")
        pid = await pid_in(tmp_path / "stuck")
        with pytest.raises(CompressionTimedOut):
            await stuck
        await eventually(lambda: is_gone(pid))
        await eventually(lambda: len((tmp_path / "innocent").read_text().split()) == 2)
        (tmp_path / "innocent.go").touch()
        assert (await innocent).pid != pid and ours.seen.reasons == ["deadline"]


async def test_of_several_jobs_in_a_process_that_died_each_is_tried_alone_and_the_guilty_one_fails(
    tmp_path: Path,
) -> None:
    async with acting(TOGETHER, plan(small=4, shared=1)) as ours:
        innocents = [ours.begin(f"wait {tmp_path / name}") for name in ("one", "two")]
        await pid_in(tmp_path / "one")
        guilty = ours.begin(f"die {tmp_path / 'guilty'}")
        for name in ("one", "two"):
            (tmp_path / f"{name}.go").touch()
        with pytest.raises(CompressorFailed):
            await guilty
        for task in innocents:
            await task
        assert (tmp_path / "guilty").read_text().count("\n") <= 2


def test_nothing_is_left_when_the_process_that_gave_the_work_is_killed(tmp_path: Path) -> None:
    code = f"""
        import asyncio
        from tests.compression.workers.acting import IN_TURN, eventually
        from tests.compression.workers.conftest import acting, pid_in, plan
        from pathlib import Path

        async def main():
            async with acting(IN_TURN, plan(small=2)) as ours:
                tasks = [ours.begin("spin {tmp_path}/small"), ours.begin("spin {tmp_path}/large", size=2000)]
                await pid_in(Path("{tmp_path}/small"))
                await pid_in(Path("{tmp_path}/large"))
                print("ready", flush=True)
                await asyncio.gather(*tasks)

        asyncio.run(main())
    """
    giver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert giver.stdout is not None and giver.stdout.readline() == "ready\n"
    left = psutil.Process(giver.pid).children(recursive=True)
    # The fork server, and its three workers.
    assert len(left) == 4
    giver.kill()
    giver.wait()
    giver.stdout.close()
    _, alive = psutil.wait_procs(left, timeout=120)
    assert alive == []


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_the_kernel_is_to_end_a_worker_before_the_server() -> None:
    async with acting(IN_TURN, plan()) as ours:
        assert oom_score((await ours.order("hello")).pid) > oom_score(os.getpid())
