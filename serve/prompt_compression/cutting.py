"""What was kept of texts that were compressed together, cut back into one text each."""

from collections.abc import Iterable, Iterator, Sequence

from compression.choosing.assembly import MARK
from compression.source.units import Slice
from serve.prompt_compression.blocks import JOINT


def cut(texts: Sequence[str], kept: Sequence[Slice], *, mark_gaps: bool) -> tuple[str, ...]:
    """For each of the texts, what the slices `kept` of them all, joined, have of it; empty where that is nothing.

    With `mark_gaps` a mark is put between two pieces of a text that are not neighbours.
    """
    outputs = []
    start = first = 0
    for text in texts:
        end = start + len(text)
        # Slices stand in order. Going through all of them for each text would take a large block seconds.
        while first < len(kept) and kept[first].end <= start:
            first += 1
        outputs.append(_written(text, start, _within(kept, first, start, end), mark_gaps=mark_gaps))
        start = end + len(JOINT)
    return tuple(outputs)


def _within(kept: Sequence[Slice], first: int, start: int, end: int) -> Iterator[Slice]:
    """What the slices from `first` on have between `start` and `end`."""
    for at in range(first, len(kept)):
        piece = kept[at]
        if piece.start >= end:
            return
        if piece.start < piece.end:
            yield Slice(max(piece.start, start), min(piece.end, end))


def _written(text: str, start: int, pieces: Iterable[Slice], *, mark_gaps: bool) -> str:
    written: list[str] = []
    before = None
    for piece in pieces:
        left_out = "" if before is None else text[before - start : piece.start - start]
        if mark_gaps and left_out.strip():
            _strip_end(written)
            written.append(f" {MARK} ")
        written.append(text[piece.start - start : piece.end - start])
        before = piece.end
    return "".join(written)


def _strip_end(written: list[str]) -> None:
    while written and not written[-1].strip():
        written.pop()
    if written:
        written[-1] = written[-1].rstrip()
