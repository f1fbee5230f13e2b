"""Units that others need, such as a frame's ends or a document's title, and that are added once for all of them."""

from dataclasses import dataclass

from compression.source.units import Segmentation


@dataclass(slots=True)
class Group:
    """Units that are kept while any unit that needs them is: a frame's ends, a document's title."""

    units: tuple[int, ...]
    needs: tuple[int, ...]
    cost: int = 0
    users: int = 0


def chosen_with_frame(text: Segmentation) -> dict[int, int]:
    """Units that a message's or a record's frame is made of and that may be chosen for themselves, by its number."""
    return {
        unit: number
        for number, frame in enumerate(text.frames)
        if frame.kind in ("message", "json")
        for unit in frame.ends
        if text.units[unit].kind != "bracket"
    }
