"""The model of a disk: what was synced is there after a power cut, and of the rest only what a cut may leave."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.power_loss.disk import CUTS, SECTOR, Change, Cut, Disk, File
from tests.power_loss.journal import CREATE, LINK, RENAME, SYNC, TRUNCATE, UNLINK, WRITE, Record

ROUNDS = 200


class Recorded:
    """A disk on which files are changed, as the recorder would note it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self.disk = Disk(self.root)
        self._folder = folder
        self._images = 0

    def note(
        self, kind: int, name: str = "", other: str = "", inode: int = 0, at: int = 0, data: bytes = b""
    ) -> None:
        names = [str(self.root / one) if one else "" for one in (name, other)]
        self.disk.apply(Record(kind, *names, inode, at, data))

    def sync_names(self) -> None:
        self.disk.apply(Record(SYNC, str(self.root), "", 0, 0, b""))

    def after(self, cut: Cut, seed: int) -> dict[str, bytes]:
        self._images += 1
        target = self._folder / f"image{self._images}"
        self.disk.write_after(cut, random.Random(seed), target)
        return {path.name: path.read_bytes() for path in target.iterdir()}

    def all_after(self) -> list[dict[str, bytes]]:
        return [self.after(cut, seed) for cut in CUTS for seed in range(ROUNDS)]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def test_what_was_synced_with_its_folder_is_there_after_every_cut(recorded: Recorded) -> None:
    recorded.note(CREATE, "a", inode=1)
    recorded.note(WRITE, inode=1, data=b"kept")
    recorded.note(SYNC, "a", inode=1)
    recorded.sync_names()
    recorded.note(WRITE, inode=1, at=4, data=b" or not")
    found = {image["a"] for image in recorded.all_after()}
    assert found == {b"kept", b"kept or not"}


def test_a_file_that_was_synced_may_be_without_its_name_until_its_folder_was(recorded: Recorded) -> None:
    recorded.note(CREATE, "a", inode=1)
    recorded.note(WRITE, inode=1, data=b"kept")
    recorded.note(SYNC, "a", inode=1)
    assert recorded.after("nothing more", 1) == {}
    assert {image.get("a") for image in recorded.all_after()} == {None, b"kept"}


def test_a_write_of_many_sectors_may_be_torn_and_a_sector_may_not() -> None:
    old, new = bytes(3 * SECTOR), b"x" * 3 * SECTOR
    states = set()
    for cut in CUTS:
        for seed in range(ROUNDS):
            file = File(bytearray(old), [Change(0, new)])
            states.add(bytes(file.after(cut, random.Random(seed))))
    assert {old, new} < states
    pieces = {state[at : at + SECTOR] for state in states for at in range(0, 3 * SECTOR, SECTOR)}
    assert pieces == {old[:SECTOR], new[:SECTOR]}


def test_a_name_that_is_replaced_is_the_old_file_or_the_new_one(recorded: Recorded) -> None:
    recorded.note(CREATE, "a", inode=1)
    recorded.note(WRITE, inode=1, data=b"old")
    recorded.note(SYNC, "a", inode=1)
    recorded.sync_names()
    recorded.note(CREATE, "a.part", inode=2)
    recorded.note(WRITE, inode=2, data=b"new")
    recorded.note(SYNC, "a.part", inode=2)
    recorded.note(RENAME, "a.part", "a")
    assert {image["a"] for image in recorded.all_after()} == {b"old", b"new"}
    recorded.sync_names()
    assert {tuple(image.items()) for image in recorded.all_after()} == {(("a", b"new"),)}


def test_a_file_of_two_names_outlives_one_of_them(recorded: Recorded) -> None:
    recorded.note(CREATE, "fresh", inode=1)
    recorded.note(WRITE, inode=1, data=b"secret")
    recorded.note(SYNC, "fresh", inode=1)
    recorded.note(LINK, "fresh", "secret")
    recorded.note(UNLINK, "fresh")
    recorded.sync_names()
    assert recorded.after("nothing more", 1) == {"secret": b"secret"}


def test_a_file_that_was_cut_short_has_its_old_size_or_the_new_one(recorded: Recorded) -> None:
    recorded.note(CREATE, "a", inode=1)
    recorded.note(WRITE, inode=1, data=b"long")
    recorded.note(SYNC, "a", inode=1)
    recorded.sync_names()
    recorded.note(TRUNCATE, inode=1, at=2)
    assert {image["a"] for image in recorded.all_after()} == {b"long", b"lo"}
