"""Files in the ledger: there once they are whole, within their project's bounds, and gone when their time is over."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from billing.batches.batch import FileBounds, FileInUse, FilePage, FilesFull, LostClaim, UnknownFile
from billing.batches.file_store import FileFolder, FileStore, written_file
from billing.errors import LedgerUnavailable
from tests.billing.batches.making import DAY_S, HERE, ROOMY, new_batch, new_file, store_of, uploaded
from tests.billing.conftest import NOW, Books


async def test_a_file_is_there_once_it_is_whole_and_for_its_project_alone(books: Books) -> None:
    files, owner, stranger = FileStore(books.database), await books.new_caller(), await books.new_caller()
    file = new_file(owner, size=1000)
    await files.begin(file, ROOMY)
    with pytest.raises(UnknownFile):
        await files.find(owner.project_id, file.id)
    done = await files.finish(file.id, size=321, lifetime_s=DAY_S)
    assert (done.size, done.expires_at - done.created_at) == (321, DAY_S)
    assert await files.find(owner.project_id, file.id) == done
    for call in (files.find, files.forget):
        with pytest.raises(UnknownFile):
            await call(stranger.project_id, file.id)


async def test_the_bounds_count_what_is_being_written_and_a_deletion_gives_all_of_it_back(
    books: Books,
) -> None:
    files, owner = FileStore(books.database), await books.new_caller()
    bounds = FileBounds(files=2, bytes=1000)
    first = new_file(owner, size=900)
    await files.begin(first, bounds)
    with pytest.raises(FilesFull):
        await files.begin(new_file(owner, size=101), bounds)
    await files.finish(first.id, size=100, lifetime_s=DAY_S)
    second = new_file(owner, size=900)
    await files.begin(second, bounds)
    with pytest.raises(FilesFull):
        await files.begin(new_file(owner, size=0), bounds)
    await files.abandon(second.id)
    await files.delete_row(second.id)
    await files.forget(owner.project_id, first.id)
    await files.delete_row(first.id)
    await files.begin(new_file(owner, size=1000), bounds)


async def test_a_file_that_nobody_writes_to_any_more_expires_and_cannot_be_finished(books: Books) -> None:
    files, owner = FileStore(books.database, grace_s=60), await books.new_caller()
    file = new_file(owner)
    await files.begin(file, ROOMY)
    await books.at(NOW + timedelta(seconds=50))
    await files.keep_alive(file.id)
    await books.at(NOW + timedelta(seconds=100))
    assert await files.expired(HERE.store) == []
    await books.at(NOW + timedelta(seconds=111))
    assert await files.expired(HERE.store) == [file.id]
    for late in (files.keep_alive(file.id), files.finish(file.id, size=1, lifetime_s=DAY_S)):
        with pytest.raises(LostClaim):
            await late


async def test_a_file_that_the_ledger_finished_stays_though_its_answer_was_an_error(
    books: Books, tmp_path: Path
) -> None:
    files, folder, owner = FileStore(books.database), FileFolder(tmp_path / "files"), await books.new_caller()
    finished, given_up = new_file(owner), new_file(owner)
    with pytest.raises(LedgerUnavailable):
        async with written_file(files, folder, finished, ROOMY) as writer:
            await writer.write(b"all of it")
            await writer.close()
            await files.finish(finished.id, size=9, lifetime_s=DAY_S)
            raise LedgerUnavailable("the commit was done, and its answer lost")
    found = await files.find(owner.project_id, finished.id)
    with folder.open(found.id) as file:
        assert file.read() == b"all of it"
    with pytest.raises(LedgerUnavailable):
        async with written_file(files, folder, given_up, ROOMY) as writer:
            raise LedgerUnavailable("the commit was not done")
    assert not folder.has(given_up.id)


async def test_the_input_of_a_batch_is_neither_deleted_nor_expired_before_that_has_ended(
    books: Books,
) -> None:
    files, batches, owner = FileStore(books.database), store_of(books), await books.new_caller()
    file = await uploaded(books, owner)
    new = new_batch(owner, file)
    await batches.make(new)
    with pytest.raises(FileInUse, match=new.id):
        await files.forget(owner.project_id, file.id)
    await books.at(NOW + timedelta(days=2))
    assert await files.expired(HERE.store) == []
    job = await batches.take_job(["validating"])
    assert job is not None
    await batches.fail(job, "[]")
    assert await files.expired(HERE.store) == [file.id]
    with pytest.raises(UnknownFile):
        await batches.make(new_batch(owner, file))


async def test_lists_are_in_pages_either_way_and_by_purpose(books: Books) -> None:
    files, owner = FileStore(books.database), await books.new_caller()
    made = []
    for second in range(3):
        await books.at(NOW + timedelta(seconds=second))
        made.append((await uploaded(books, owner)).id)
    newest = await files.listed(owner.project_id, FilePage(limit=2))
    assert [file.id for file in newest] == made[::-1]
    rest = await files.listed(owner.project_id, FilePage(limit=2, after=made[1]))
    assert [file.id for file in rest] == made[:1]
    oldest = await files.listed(owner.project_id, FilePage(limit=2, after=made[0], oldest_first=True))
    assert [file.id for file in oldest] == made[1:]
    assert await files.listed(owner.project_id, FilePage(limit=2, purpose="batch_output")) == []
