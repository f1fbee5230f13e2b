"""A disk as POSIX promises it: what was synced is there after a power cut; of the rest, anything may be.

A file's content outlives the cut once the file was synced; its name only once the folder was, which also holds for
the folder's own name in the one above. Of what was not synced, a cut leaves nothing, or all up to a point with the
last write torn at a sector, or any of the sectors. Names of one folder change in order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from tests.power_loss.journal import CREATE, LINK, MKDIR, RENAME, SYNC, TRUNCATE, UNLINK, WRITE, Record

SECTOR = 512
Cut = Literal["nothing more", "up to a point", "any sectors"]
CUTS: Sequence[Cut] = ("nothing more", "up to a point", "any sectors")


@dataclass(slots=True)
class Change:
    """A write at `offset`, or the new size where `data` is None."""

    offset: int
    data: bytes | None


@dataclass(eq=False)
class File:
    """What the disk has of a file for certain, and what it was given since."""

    kept: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.kept, change)
        self.pending.clear()

    def now(self) -> bytearray:
        """Its content as processes see it."""
        found = bytearray(self.kept)
        for change in self.pending:
            apply(found, change)
        return found

    def after(self, cut: Cut, rng: random.Random) -> bytes | bytearray:
        if cut == "nothing more" or not self.pending:
            return self.kept
        found = bytearray(self.kept)
        if cut == "any sectors":
            for change in self.pending:
                for piece in _sectors(change):
                    if rng.random() < 0.5:
                        apply(found, piece)
            return found
        whole = rng.randint(0, len(self.pending))
        for change in self.pending[:whole]:
            apply(found, change)
        for torn in self.pending[whole : whole + 1]:
            pieces = list(_sectors(torn))
            for piece in pieces[: rng.randrange(len(pieces) + 1)]:
                apply(found, piece)
        return found


@dataclass(eq=False)
class Folder:
    """`kept` are the names that the disk has for certain; each of `pending` is what one call changed since."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    kept: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        _rename(self.names, names)
        self.pending.append(names)

    def sync(self) -> None:
        self.kept, self.pending = dict(self.names), []

    def after(self, cut: Cut, rng: random.Random) -> dict[str, File | Folder]:
        found = dict(self.kept)
        most = 0 if cut == "nothing more" else rng.randint(0, len(self.pending))
        for names in self.pending[:most]:
            _rename(found, names)
        return found


def _rename(names: dict[str, File | Folder], changed: dict[str, File | Folder | None]) -> None:
    for name, node in changed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def apply(content: bytearray, change: Change) -> None:
    if change.data is None:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    if change.offset > len(content):
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


def _sectors(change: Change) -> Iterator[Change]:
    if change.data is None:
        yield change
        return
    at, end = change.offset, change.offset + len(change.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        yield Change(at, change.data[at - change.offset : until - change.offset])
        at = until


class Disk:
    """The folder `root` of a run, as it was when it began and after each change that was recorded."""

    def __init__(self, root: Path) -> None:
        """What is in `root` is on the disk for certain."""
        self._root = root
        self._files: dict[int, File] = {}
        self._top = self._found(root)

    def _found(self, path: Path) -> Folder:
        folder = Folder()
        for one in path.iterdir():
            if one.is_dir() and not one.is_symlink():
                folder.names[one.name] = self._found(one)
            elif one.is_file():
                file = self._files[one.stat().st_ino] = File(bytearray(one.read_bytes()))
                folder.names[one.name] = file
        folder.kept = dict(folder.names)
        return folder

    def apply(self, record: Record) -> None:
        match record.kind:
            case _ if record.kind == CREATE:
                self._create(record)
            case _ if record.kind in (WRITE, TRUNCATE):
                if file := self._files.get(record.inode):
                    file.pending.append(Change(record.offset, record.data if record.kind == WRITE else None))
            case _ if record.kind == SYNC:
                self._sync(record)
            case _ if record.kind in (RENAME, LINK):
                self._move(record)
            case _ if record.kind == UNLINK:
                folder, name = self._place(record.name)
                folder.change({name: None})
            case _ if record.kind == MKDIR:
                folder, name = self._place(record.name)
                folder.change({name: Folder()})

    def _create(self, record: Record) -> None:
        folder, name = self._place(record.name)
        if name not in folder.names:
            # The number of a file that is gone may be given again.
            self._files[record.inode] = File()
            folder.change({name: self._files[record.inode]})

    def _sync(self, record: Record) -> None:
        if (file := self._files.get(record.inode)) is not None:
            file.sync()
            return
        node = self._node(record.name)
        if isinstance(node, Folder):
            node.sync()

    def _move(self, record: Record) -> None:
        source, old = self._place(record.name)
        target, new = self._place(record.other_name)
        node = source.names.get(old)
        if node is None:
            # Written through a buffered stream of C, which the recorder does not see: nothing that is kept.
            return
        gone: dict[str, File | Folder | None] = {old: None} if record.kind == RENAME else {}
        if source is target:
            target.change({**gone, new: node})
            return
        target.change({new: node})
        source.change(gone)

    def _place(self, name: str) -> tuple[Folder, str]:
        path = PurePath(name)
        folder = self._node(str(path.parent))
        assert isinstance(folder, Folder), f"{name} is in no folder that is known"
        return folder, path.name

    def _node(self, name: str) -> File | Folder | None:
        node: File | Folder | None = self._top
        for part in PurePath(name).relative_to(self._root).parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def now(self) -> dict[str, bytes]:
        """The files at the top, as processes see them."""
        return {name: bytes(node.now()) for name, node in self._top.names.items() if isinstance(node, File)}

    def write_after(self, cut: Cut, rng: random.Random, target: Path) -> None:
        """What a power cut leaves now, as files below `target`, which must not exist."""
        self._write(self._top, cut, rng, target)

    def _write(self, folder: Folder, cut: Cut, rng: random.Random, target: Path) -> None:
        target.mkdir(mode=0o700)
        for name, node in folder.after(cut, rng).items():
            if isinstance(node, Folder):
                self._write(node, cut, rng, target / name)
            else:
                (target / name).write_bytes(node.after(cut, rng))
