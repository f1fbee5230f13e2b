"""Views of a source that leave some of it out, and texts moved between a source and such a view."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from compression.source.origin import Edit, Origin
from compression.source.units import Segmentation, Slice


class EditedView:
    """Written from the source's start to its end; `text()` and `origin` are good when all has been added."""

    def __init__(self, source: str) -> None:
        self.origin = Origin(source, is_markup=True)
        self.length = 0
        self._parts: list[str] = []
        self._at = 0
        self._escaped = 0
        self._skipped = 0

    def text(self) -> str:
        return "".join(self._parts)

    def keep(self, start: int, end: int) -> None:
        """`source[start:end]` as it is; what is before it and was not added is left out."""
        if start == end:
            return
        self._leave_out(start)
        self._parts.append(self.origin.raw[start:end])
        self.length += end - start
        self._at = end

    def decode(self, start: int, end: int, character: str) -> None:
        """`source[start:end]` as one character."""
        self.keep(start, start + 1)
        self._parts[-1] = character
        self._escaped += end - start - 1
        self.origin.escapes.append(self.length - 1)
        self.origin.escaped.append(self._escaped)
        self._at = end

    def finish(self) -> None:
        """What is left of the source is left out."""
        self._leave_out(len(self.origin.raw))

    def _leave_out(self, until: int) -> None:
        if until > self._at:
            self._skipped += until - self._at
            self.origin.gaps.append(self.length)
            self.origin.skipped.append(self._skipped)
            self._at = until


def without(text: Segmentation) -> Segmentation:
    """The same text over a view in which its edits are made; itself where it has none."""
    if not text.edits:
        return text
    edits = sorted(text.edits)
    view = EditedView(text.source)
    at = 0
    for start, end, character in edits:
        view.keep(at, start)
        if character:
            view.decode(start, end, character)
        at = end
    view.keep(at, len(text.source))
    view.finish()
    view.origin.outer = text.origin
    moved = _moved(text, view.text(), _places(edits))
    return replace(moved, origin=view.origin, edits=())


def _places(edits: Sequence[Edit]) -> Callable[[int], int]:
    """From the source to the view: where an edit begins, for what lies in one."""
    starts = [edit.start for edit in edits]
    shifts = [0, *accumulate(edit.end - edit.start - len(edit.text) for edit in edits)]

    def place(at: int) -> int:
        number = bisect_right(starts, at)
        if number and at < edits[number - 1].end:
            return starts[number - 1] - shifts[number - 1]
        return at - shifts[number]

    return place


def with_markup(text: Segmentation) -> Segmentation:
    """The same text over the source that it is a view of, its edits noted; itself where it is no view."""
    origin = text.origin
    if origin is None:
        return text
    moved = _moved(text, origin.raw, origin.raw_start, origin.raw_end)
    return replace(moved, origin=None, edits=tuple(sorted(_edits(text.source, origin))))


def _edits(view: str, origin: Origin) -> Iterator[Edit]:
    for at in origin.gaps:
        yield Edit(origin.raw_end(at), origin.raw_start(at))
    for at in origin.escapes:
        yield Edit(origin.raw_start(at), origin.raw_end(at + 1), view[at])


def _moved(
    text: Segmentation, source: str, start: Callable[[int], int], end: Callable[[int], int] | None = None
) -> Segmentation:
    end = end or start
    return replace(
        text,
        source=source,
        units=tuple(replace(unit, start=start(unit.start), end=end(unit.end)) for unit in text.units),
        documents=tuple(
            replace(document, start=start(document.start), end=end(document.end))
            for document in text.documents
        ),
        main=tuple(Slice(start(first), end(last)) for first, last in text.main),
    )


def is_within(stretches: Sequence[Slice], start: int) -> bool:
    """Whether `start` lies in one of the stretches, which are in rising order."""
    number = bisect_right(stretches, (start, float("inf"))) - 1
    return number >= 0 and start < stretches[number].end
