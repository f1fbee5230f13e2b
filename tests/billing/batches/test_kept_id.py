"""The id of a file store: one for all that reach its folder, and nothing is kept or deleted where it cannot be read."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from billing.batches.batch import StorageUnavailable
from billing.batches.file_store import STORE, FileFolder


def test_of_many_that_come_first_at_once_all_find_one_id(tmp_path: Path) -> None:
    for attempt in range(20):
        path, start = tmp_path / str(attempt) / "files", Barrier(8)

        def found(path: Path = path, start: Barrier = start) -> str:
            start.wait(10)
            return FileFolder(path).store()

        with ThreadPoolExecutor(8) as threads:
            ids = {each.result() for each in [threads.submit(found) for _ in range(8)]}
        assert len(ids) == 1
        assert [each.name for each in path.iterdir()] == [STORE]
        assert stat.S_IMODE((path / STORE).stat().st_mode) == 0o600


def test_whoever_dies_while_it_is_made_leaves_none_that_is_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("fsync", "link"):
        with monkeypatch.context() as patched:
            patched.setattr(os, step, dying)
            with pytest.raises(KeyboardInterrupt):
                FileFolder(tmp_path).store()
        assert list(tmp_path.iterdir()) == []
    assert len(FileFolder(tmp_path).store()) == 32


@pytest.mark.parametrize("broken", [b"", b"not an id", b"a" * 31, b"a" * 33, b"A" * 32, b"\xff" * 32])
def test_what_is_no_id_is_refused_and_left_as_it_is(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / STORE).write_bytes(broken)
    with pytest.raises(StorageUnavailable, match=r"\.store holds no id"):
        FileFolder(tmp_path).store()
    assert (tmp_path / STORE).read_bytes() == broken


def test_another_folder_that_is_mounted_there_is_another_store(tmp_path: Path) -> None:
    folder = FileFolder(tmp_path / "files")
    first = folder.store()
    (tmp_path / "files").rename(tmp_path / "elsewhere")
    assert folder.store() != first == FileFolder(tmp_path / "elsewhere").store()
