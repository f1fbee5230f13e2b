"""The collection hook: what a payment system's command gets and answers, and what becomes of the collection."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from billing.accounts import audit_log
from billing.background.upkeep import Loop, collect_once, collection_round
from billing.collections.collection import (
    NANO_PER_CENT,
    Collection,
    HookAnswer,
    HookCommand,
    read_answer,
    run_hook,
)
from billing.collections.collection_sql import LONGEST_PAUSE_S, pause_after
from billing.collections.collector import Collector
from billing.errors import HookFailed
from billing.store.database import FakeOutageDatabase

if TYPE_CHECKING:
    from tests.billing.conftest import Books

HOUR = timedelta(hours=1)


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def fake_payment_system(log: Path, then: str = "") -> list[str]:
    """A fake: appends what it is given to `log`, a line each, then runs `then`."""
    return python(
        f"import sys, os, time, json; given = sys.stdin.read(); open(sys.argv[1], 'a').write(given); {then}",
        log,
    )


def calls(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def new_collection(books: Books, *, cents: int = 9, later: timedelta = timedelta()) -> Collection:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller, cents * NANO_PER_CENT), cents * NANO_PER_CENT)
    made = await Collector(books.database, actor="test").cut_now(caller.workspace_id, now=books.now + later)
    assert made is not None
    return made


async def one_round(
    books: Books, argv: Sequence[str], *, timeout_s: float = 30, later: timedelta = timedelta()
) -> int:
    hook = HookCommand(argv, timeout_s)
    return await Collector(books.database, actor="test").hand_over(hook, clock=lambda: books.now + later)


async def now_of(books: Books, made: Collection) -> Collection:
    return next(c for c in await Collector(books.database, actor="test").listed() if c.id == made.id)


async def noted(books: Books, made: Collection) -> list[audit_log.AuditEntry]:
    return (await books.database.read(lambda c: audit_log.entries(c, subject=made.id)))[1:]


async def test_the_command_gets_the_collection_as_json_and_is_run_once(books: Books, tmp_path: Path) -> None:
    made, log = await new_collection(books), tmp_path / "log"
    assert await one_round(books, fake_payment_system(log)) == 1
    assert await one_round(books, fake_payment_system(log), later=10 * HOUR) == 0
    (call,) = calls(log)
    assert call == {
        "idempotency_key": made.idempotency_key,
        "collection_id": made.id,
        "workspace_id": made.workspace_id,
        "workspace_name": made.workspace_name,
        "cents": 9,
        "currency": "usd",
        "times_opened": 1,
        "created_at": "2026-11-20T12:00:00+00:00",
    }
    handed = await now_of(books, made)
    assert (handed.state, handed.handed_over_at, handed.reference) == ("open", books.now, None)
    (entry,) = await noted(books, made)
    assert entry.action == "collection.hand_over"


@pytest.mark.parametrize("state", ["paid", "failed"])
async def test_what_the_payment_system_answers_at_once_is_kept(
    books: Books, tmp_path: Path, state: str
) -> None:
    made = await new_collection(books)
    answer = json.dumps({"state": state, "reference": "pi_123"})
    assert await one_round(books, fake_payment_system(tmp_path / "log", f"print({answer!r})")) == 1
    handed = await now_of(books, made)
    assert (handed.state, handed.reference) == (state, "pi_123")
    assert [entry.action for entry in await noted(books, made)] == ["collection.hand_over", "collection.move"]


async def test_a_failure_is_tried_again_later_with_the_same_key(books: Books, tmp_path: Path) -> None:
    made, log = await new_collection(books), tmp_path / "log"
    failing = fake_payment_system(log, "sys.exit('card service is away')")
    assert await one_round(books, failing) == 0
    assert await one_round(books, failing, later=timedelta(seconds=29)) == 0
    assert len(calls(log)) == 1
    assert await one_round(books, failing, later=timedelta(seconds=30)) == 0
    assert await one_round(books, fake_payment_system(log), later=HOUR) == 1
    assert [call["idempotency_key"] for call in calls(log)] == [made.idempotency_key] * 3
    first, second, last = await noted(books, made)
    assert (first.action, first.details["problem"]) == (
        "collection.hook_fail",
        "exit code 1: card service is away",
    )
    assert (second.details["attempt"], last.action) == (2, "collection.hand_over")


async def test_one_that_fails_does_not_hold_up_the_others(books: Books, tmp_path: Path) -> None:
    bad, good = await new_collection(books), await new_collection(books, cents=7)
    choosy = fake_payment_system(tmp_path / "log", "sys.exit(json.loads(given)['cents'] == 9)")
    assert await one_round(books, choosy) == 1
    assert (await now_of(books, bad)).handed_over_at is None
    assert (await now_of(books, good)).handed_over_at == books.now


async def test_a_command_that_hangs_is_killed_with_its_children_and_ends_the_round(
    books: Books, tmp_path: Path
) -> None:
    made = await new_collection(books)
    await new_collection(books, cents=7, later=timedelta(seconds=1))
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    hanging = (
        "import subprocess; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    assert await one_round(books, fake_payment_system(log, hanging), timeout_s=1) == 0
    assert len(calls(log)) == 1
    (entry,) = await noted(books, made)
    assert "longer than 1 s" in entry.details["problem"]
    await gone(int(pid_file.read_text()))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/no/such/program"], "'/no/such/program' cannot be run: No such file or directory"),
        (["/"], "cannot be run: Permission denied"),
        (python("import sys; sys.exit(3)"), "exit code 3: it wrote nothing to stderr"),
        (python("import os; os.kill(os.getpid(), 9)"), "signal 9"),
        (python("import sys; sys.exit('x' * 100000)"), "exit code 1: xxx"),
    ],
)
async def test_what_went_wrong_is_named(argv: list[str], words: str) -> None:
    with pytest.raises(HookFailed) as caught:
        await run_hook(HookCommand(argv, 30), b"{}")
    assert words in caught.value.problem and len(caught.value.problem) < 600


async def test_no_shell_reads_the_arguments() -> None:
    arguments = ["$(echo hi)", "; rm -rf x", "a b"]
    echo = "import sys, json; print(json.dumps({'reference': '|'.join(sys.argv[1:])}))"
    answer = await run_hook(HookCommand(python(echo, *arguments), 30), b"{}")
    assert answer.reference == "|".join(arguments)


async def test_a_child_that_stays_behind_does_not_hold_up_the_answer() -> None:
    leaving = "import subprocess; subprocess.Popen(['sleep', '30']); print('{\"state\": \"paid\"}')"
    begun = time.monotonic()
    assert (await run_hook(HookCommand(python(leaving), 25), b"{}")).state == "paid"
    assert time.monotonic() - begun < 20


async def test_a_command_that_reads_nothing_and_prints_much_ends_and_is_not_understood() -> None:
    with pytest.raises(HookFailed, match=r"not understood: it is not one JSON object: x{500}$"):
        await run_hook(HookCommand(python("print('x' * 5_000_000)"), 30), b"x" * 1_000_000)


async def test_an_exit_code_that_is_lost_is_no_success() -> None:
    """Where SIGCHLD is ignored, the system reaps children itself, and Popen would call every end a success."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(HookFailed, match="exit code was lost"):
            await run_hook(HookCommand(["true"], 30), b"{}")
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_a_cancelled_hook_is_killed_and_its_collection_comes_again(
    books: Books, tmp_path: Path
) -> None:
    made, log, pid_file = await new_collection(books), tmp_path / "log", tmp_path / "pid"
    hanging = f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    running = asyncio.create_task(one_round(books, fake_payment_system(log, hanging)))
    async with asyncio.timeout(60):
        while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(int(pid_file.read_text()))
    assert await one_round(books, fake_payment_system(log), later=timedelta(seconds=80)) == 0
    assert await one_round(books, fake_payment_system(log), later=timedelta(seconds=91)) == 1
    assert [call["idempotency_key"] for call in calls(log)] == [made.idempotency_key] * 2


async def test_an_answer_that_the_ledger_did_not_take_is_asked_for_again(
    books: Books, tmp_path: Path
) -> None:
    made, log = await new_collection(books), tmp_path / "log"
    outage = FakeOutageDatabase(books.database)
    writes = 0
    plain = outage.write

    async def failing_second(work, *, durable=True):  # type: ignore[no-untyped-def]
        nonlocal writes
        writes += 1
        outage.is_down = writes == 2
        return await plain(work, durable=durable)

    outage.write = failing_second  # type: ignore[method-assign]
    mine = Collector(outage, actor="test")
    hook = HookCommand(fake_payment_system(log, 'print(\'{"state": "paid"}\')'), 30)
    with pytest.raises(Exception, match="fake outage"):
        await mine.hand_over(hook, clock=lambda: books.now)
    assert (await now_of(books, made)).state == "open"
    assert await mine.hand_over(hook, clock=lambda: books.now + HOUR) == 1
    assert (await now_of(books, made)).state == "paid"
    assert [call["idempotency_key"] for call in calls(log)] == [made.idempotency_key] * 2


async def test_of_many_servers_one_runs_the_hook(books: Books, tmp_path: Path) -> None:
    for cents in (9, 8, 7):
        await new_collection(books, cents=cents)
    log = tmp_path / "log"
    counts = await asyncio.gather(*(one_round(books, fake_payment_system(log)) for _ in range(4)))
    assert sum(counts) == 3
    keys = [call["idempotency_key"] for call in calls(log)]
    assert len(keys) == len(set(keys)) == 3


async def test_what_an_operator_closed_meanwhile_stays_so(books: Books, tmp_path: Path) -> None:
    made, go = await new_collection(books), tmp_path / "go"
    log = tmp_path / "log"
    waiting = (
        f'exec("while not os.path.exists({str(go)!r}): time.sleep(0.02)"); print(\'{{"state": "paid"}}\')'
    )
    running = asyncio.create_task(one_round(books, fake_payment_system(log, waiting)))
    async with asyncio.timeout(60):
        while not calls(log):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.02)
    await Collector(books.database, actor="operator").mark(made.id, "void", now=books.now)
    go.write_text("")
    await running
    assert (await now_of(books, made)).state == "void"
    assert [entry.action for entry in await noted(books, made)] == [
        "collection.move",
        "collection.answer_late",
    ]
    assert await books.differences() == []


async def test_one_that_failed_and_was_opened_again_is_handed_over_again(
    books: Books, tmp_path: Path
) -> None:
    made, log = await new_collection(books), tmp_path / "log"
    await one_round(books, fake_payment_system(log, 'print(\'{"state": "failed"}\')'))
    await Collector(books.database, actor="operator").mark(made.id, "open", now=books.now)
    await one_round(books, fake_payment_system(log))
    assert [(call["idempotency_key"], call["times_opened"]) for call in calls(log)] == [
        (made.idempotency_key, 1),
        (made.idempotency_key, 2),
    ]


@pytest.mark.parametrize(
    ("printed", "answer"),
    [
        (b"", HookAnswer("open", None, "")),
        (b" \n", HookAnswer("open", None, "")),
        (
            b'{"state": "open", "reference": "r"}',
            HookAnswer("open", "r", '{"state": "open", "reference": "r"}'),
        ),
        (b'{"reference": "r"}', HookAnswer("open", "r", '{"reference": "r"}')),
        (b'{"state": "paid", "fee": 3}', HookAnswer("paid", None, '{"state": "paid", "fee": 3}')),
    ],
)
def test_an_answer_that_is_understood(printed: bytes, answer: HookAnswer) -> None:
    assert read_answer(printed) == answer


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b'{"state": "succeeded"}', 'state must be one of open, paid, failed: {"state": "succeeded"}'),
        (b'connecting...\n{"state": "paid"}', 'not one JSON object: connecting... {"state": "paid"}'),
        (b"queued\n", "queued"),
        (b'{"state": ["paid"]}', "state must be"),
        (b'{"status": "paid"}', "state or reference"),
        (b'{"state": "paid", "reference": 7}', "reference must be 1 to 256 printable characters"),
        (b'{"state": "paid", "reference": ""}', "reference must be"),
        (b'["paid"]', "not a JSON object"),
        (b"\xff", "\ufffd"),
        (b"[" * 9000, "[" * 500),
    ],
)
def test_an_answer_that_is_not_understood_is_a_failure_with_its_text(printed: bytes, words: str) -> None:
    with pytest.raises(HookFailed) as caught:
        read_answer(printed)
    assert "its answer was not understood" in caught.value.problem and words in caught.value.problem
    assert len(caught.value.problem) < 1000


async def test_a_collection_whose_answer_was_not_understood_is_handed_over_again(
    books: Books, tmp_path: Path
) -> None:
    made, log = await new_collection(books), tmp_path / "log"
    assert await one_round(books, fake_payment_system(log, 'print(\'{"state": "succeeded"}\')')) == 0
    assert await one_round(books, fake_payment_system(log, 'print(\'{"state": "paid"}\')'), later=HOUR) == 1
    assert [call["idempotency_key"] for call in calls(log)] == [made.idempotency_key] * 2
    (now_paid,) = await Collector(books.database, actor="test").listed()
    assert now_paid.state == "paid"
    entries = await books.database.read(lambda c: audit_log.entries(c, subject=made.id))
    (failure,) = [entry for entry in entries if entry.action == "collection.hook_fail"]
    assert "succeeded" in failure.details["problem"]


def test_pauses_grow_to_an_hour() -> None:
    seconds = [pause_after(attempts).total_seconds() for attempts in (1, 2, 3, 8, 10_000)]
    assert seconds == [30, 60, 120, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


async def test_upkeep_cuts_and_hands_over(books: Books, tmp_path: Path) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller, 9 * NANO_PER_CENT), 9 * NANO_PER_CENT)
    log = tmp_path / "log"
    await collect_once(
        Collector(books.database, actor="upkeep"),
        threshold_cents=9,
        hook=HookCommand(fake_payment_system(log), 30),
        clock=lambda: books.now,
    )
    assert [call["cents"] for call in calls(log)] == [9]


async def test_upkeep_goes_on_after_an_outage_and_needs_no_hook(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    caller = await books.new_caller()
    await books.settle(await books.hold(caller, 9 * NANO_PER_CENT), 9 * NANO_PER_CENT)
    outage.is_down = True
    mine = Collector(outage, actor="upkeep")
    round_ = collection_round(mine, threshold_cents=9, hook=None, every_s=0.01, clock=lambda: books.now)
    running = asyncio.create_task(Loop(round_).run())
    try:
        async with asyncio.timeout(60):
            while outage.reads < 2:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
            outage.is_down = False
            while not await Collector(books.database, actor="test").listed():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def gone(pid: int) -> None:
    """Wait until the process has ended; fail at the deadline."""
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
