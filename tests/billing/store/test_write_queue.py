"""Patient work lets what people wait for go first, and comes to its turn all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, text

from billing.errors import BillingError
from billing.store.database import PatientWork, open_database
from billing.store.sqlite import MAX_GROUP, Job, Waiting


def jobs(*kinds: str) -> list[Job]:
    """`u` for urgent and `p` for patient ones."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    works: dict[str, Callable[[Connection], int]] = {"u": lambda c: 1, "p": PatientWork(lambda c: 1)}
    return [Job(works[kind], False, done) for kind in kinds]


async def test_a_hold_that_comes_last_waits_for_no_more_than_one_patient_job() -> None:
    waiting = Waiting()
    waiting.extend(jobs(*"pppppu"))
    groups = list(waiting.next_groups())
    assert [isinstance(job.work, PatientWork) for group in groups for job in group] == [False, True]
    waiting.extend(jobs("u"))
    assert not isinstance(next(waiting.next_groups())[0].work, PatientWork)


async def test_patient_work_comes_to_its_turn_however_much_else_there_is() -> None:
    waiting = Waiting()
    waiting.extend(jobs("p", *"u" * (3 * MAX_GROUP)))
    sizes = [len(group) for group in waiting.next_groups()]
    assert sizes == [MAX_GROUP, 1]
    assert bool(waiting) and [len(group) for group in waiting.next_groups()] == [MAX_GROUP]


async def test_a_job_that_was_given_up_is_left_out() -> None:
    waiting = Waiting()
    given_up = jobs("p", "u")
    waiting.extend(given_up)
    for job in given_up:
        job.done.cancel()
    assert list(waiting.next_groups()) == [] and not waiting


async def test_patient_work_shares_no_transaction_with_a_settlement(tmp_path: Path) -> None:
    """Whatever becomes of it, the others' commit is theirs alone."""
    database = open_database(f"sqlite:///{tmp_path / 'rows.db'}")
    await database.write(lambda c: c.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")))
    order: list[str] = []

    def writing(name: str, number: int) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            order.append(name)
            connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
            if name == "bad":
                raise BillingError("no room")

        return work

    patient = [
        database.write(PatientWork(writing(name, n)), durable=False)
        for n, name in enumerate(("bad", "p", "p"))
    ]
    urgent = [database.write(writing("u", n)) for n in range(10, 20)]
    results = await asyncio.gather(*patient, *urgent, return_exceptions=True)
    assert isinstance(results[0], BillingError) and not any(results[1:])
    assert order[:10] == ["u"] * 10
    found = await database.read(lambda c: list(c.execute(text("SELECT n FROM numbers ORDER BY n")).scalars()))
    assert found == [1, 2, *range(10, 20)]
    await database.close()
