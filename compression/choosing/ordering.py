"""Which stretches of the source may change places when the caller does not ask for its order."""

from collections.abc import Sequence

from compression.source.units import Segmentation


def movable_groups(text: Segmentation, kept: Sequence[int]) -> list[list[int]]:
    """Kept units as documents, or as paragraphs where there is one document; what a frame spans stays together."""
    by_document = _grouped(text, kept, _joints(text, documents=True))
    return by_document if len(by_document) > 1 else _grouped(text, kept, _joints(text, documents=False))


def _grouped(text: Segmentation, kept: Sequence[int], joints: Sequence[bool]) -> list[list[int]]:
    """Cut at every joint that lies between two kept units."""
    passed = [0]
    for is_joint in joints:
        passed.append(passed[-1] + is_joint)
    groups: list[list[int]] = []
    for position, unit in enumerate(kept):
        if position and passed[unit + 1] == passed[kept[position - 1] + 1]:
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return groups


def _joints(text: Segmentation, *, documents: bool) -> list[bool]:
    """For each unit, whether a new group may begin with it."""
    units = text.units
    joints = [False] * len(units)
    for index in range(1, len(units)):
        before, unit = units[index - 1], units[index]
        changes = before.document != unit.document if documents else before.paragraph != unit.paragraph
        # A heading stays with the paragraph that it heads.
        joints[index] = changes and (documents or before.kind != "heading")
    for frame in text.frames:
        last = frame.close if frame.close is not None else frame.open + 1
        if frame.parent is None:
            for inside in range(frame.open + 1, min(last, len(units) - 1) + 1):
                joints[inside] = False
    return joints
