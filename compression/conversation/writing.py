"""Units, frames and documents of a conversation: what is left of it, whatever is chosen, is a conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from compression.conversation.draft import Draft
from compression.conversation.exchanges import exchanges
from compression.conversation.layout import Laid, lay_out
from compression.conversation.messages import Conversation, read_conversation
from compression.conversation.plan import Plan, plan, runs
from compression.units import Frame, Segmentation, UnitKind

# Cuts a text that stands by itself into at most so many units.
Segmenter = Callable[[str, int], Segmentation]
_SYSTEM = frozenset({"system", "developer"})
# Brackets of the array and of the body around it, and what the body has before and after its messages.
_AROUND = 4
_FEWEST = 7


def segment_conversation(source: str, most_units: int, segment_text: Segmenter) -> Segmentation | None:
    """The conversation that `source` is, in a view with its texts decoded; None where it is none.

    Every message is a document. Its JSON, without its texts, is a frame around them; a call and its results share one
    frame. So keeping any part of a message keeps all of its JSON, and keeping any part of an exchange keeps the JSON of
    every message in it. The arguments of a call stay with it, and may be chosen for themselves. A text is cut as one
    that stands by itself. At most `most_units` units, or seven where that is fewer.
    """
    conversation = read_conversation(source)
    if conversation is None:
        return None
    return _Writer(conversation, segment_text).write(max(_FEWEST, most_units))


class _Writer:
    """Writes one conversation. An exchange's frame is opened with its first message and filled by the others."""

    def __init__(self, conversation: Conversation, segment_text: Segmenter) -> None:
        self._layout = lay_out(conversation)
        self._groups = exchanges(conversation.messages)
        self._sizes = Counter(self._groups)
        self._protected = _protected(conversation)
        self._segment_text = segment_text
        self._draft = Draft()
        self._frame_of: dict[int, int] = {}
        self._ends: dict[int, list[int]] = {}

    def write(self, most: int) -> Segmentation:
        draft, layout = self._draft, self._layout
        draft.open_document(layout.body[0][0] if layout.body else layout.array[0][0])
        outer = self._open(layout.body[0], None) if layout.body else None
        beside = max(1, most // 16)
        self._members(layout.before, outer, beside)
        array = self._open(layout.array[0], outer)
        self._add_messages(array, most - _AROUND - 2 * beside)
        draft.close_frame(array, *layout.array[1], protected=True)
        self._members(layout.after, outer, beside)
        if layout.body and outer is not None:
            draft.close_frame(outer, *layout.body[1], protected=True)
            # A body without its messages would be no conversation.
            draft.frames[outer] = replace(draft.frames[outer], also=draft.frames[array].ends)
        return draft.build(layout)

    def _open(self, span: tuple[int, int], parent: int | None) -> int:
        unit = self._draft.add(*span, "bracket", parent, protected=True)
        return self._draft.open_frame(Frame("json", unit, None, parent))

    def _members(self, members: Sequence[Laid], outer: int | None, most: int) -> None:
        """What a request body has beside its messages: each member whole, or the elements of its array."""
        draft = self._draft
        if sum(3 + len(member.elements) + 3 * len(member.holes) for member in members) > most:
            if members:
                draft.add(members[0].start, members[-1].end, "json_member", outer)
            return
        for member in members:
            if member.elements:
                opened = draft.add(member.start, member.elements[0][0], "bracket", outer)
                frame = draft.open_frame(Frame("json", opened, None, outer))
                for start, end in member.elements:
                    draft.add(start, end, "json_member", frame)
                draft.close_frame(frame, member.elements[-1][1], member.end, protected=False)
            else:
                draft.add(member.start, member.end, "json_member", outer)

    def _add_messages(self, array: int, most: int) -> None:
        messages = self._layout.messages
        found = plan(messages, most)
        if found is not None:
            for number in range(len(messages)):
                self._draft.open_document(messages[number].start)
                self._add_message(number, array, found)
            self._fill_frames(array)
            return
        for first, last in runs(self._groups, messages, most):
            self._draft.open_document(messages[first].start)
            self._draft.add(messages[first].start, messages[last - 1].end, "json_member", array)

    def _add_message(self, number: int, array: int, found: Plan) -> None:
        draft, laid, group = self._draft, self._layout.messages[number], self._groups[number]
        holes, is_protected = found.holes_of(laid), number in self._protected
        if not holes and self._sizes[group] == 1:
            # Nothing in it could be chosen: an image, a call without arguments. It stays or goes whole.
            kind: UnitKind = "bracket" if is_protected else "json_member"
            draft.add(laid.start, laid.end, kind, array, protected=is_protected)
            return
        frame = self._frame(group, array)
        ends, at = self._ends[frame], laid.start
        for hole in holes:
            ends.append(draft.add(at, hole.start, "bracket", array, protected=is_protected))
            if hole.is_call:
                ends.append(draft.add(hole.start, hole.end, "json_member", array))
            else:
                text = self._layout.source[hole.start : hole.end]
                draft.graft(self._segment_text(text, found.most_of(hole)), hole.start, frame)
            at = hole.end
        ends.append(draft.add(at, laid.end, "bracket", array, protected=is_protected))

    def _frame(self, group: int, array: int) -> int:
        if group not in self._frame_of:
            self._frame_of[group] = self._draft.open_frame(
                Frame("message", len(self._draft.units), None, array)
            )
            self._ends[self._frame_of[group]] = []
        return self._frame_of[group]

    def _fill_frames(self, array: int) -> None:
        for frame, ends in self._ends.items():
            close = ends[-1] if len(ends) > 1 else None
            self._draft.frames[frame] = Frame("message", ends[0], close, array, tuple(ends[1:-1]))
        self._draft.let_empty_frames_be_chosen(self._ends)


def _protected(conversation: Conversation) -> frozenset[int]:
    """Messages whose JSON stays where there is room: the system's, and the last of the user's."""
    messages = conversation.messages
    kept = [number for number, message in enumerate(messages) if message.role in _SYSTEM]
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    return frozenset(kept + users[-1:])
