"""Units, frames and documents of a conversation: whatever is chosen, the result is a conversation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from compression.conversation.draft import Draft
from compression.conversation.exchanges import exchanges
from compression.conversation.layout import Laid, lay_out
from compression.conversation.messages import Conversation, read_conversation
from compression.conversation.plan import Plan, plan, runs
from compression.conversation.shells import Segmenter, Shells
from compression.source.units import Frame, Segmentation, UnitKind

_SYSTEM = frozenset({"system", "developer"})
# Brackets of the array and of the body around it, and what the body has before and after its messages.
_AROUND = 4
_FEWEST = 7


def segment_conversation(source: str, most_units: int, segment_text: Segmenter) -> Segmentation | None:
    """The conversation in `source`, in a view with its texts decoded; None where it is not one.

    Every message is a document. Its JSON, without its texts, is a frame around them; a call and its results share one
    frame. So keeping any part of a message keeps all of its JSON, and keeping any part of an exchange keeps the JSON of
    every message in it. The arguments of a call stay with it, and may be chosen for themselves. A part that is a text
    goes where all of its text goes; other parts stay with their message. A text is cut as any other text.
    At most `most_units` units, or seven where that is fewer.
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
        self._last_user = max(_by_role(conversation, frozenset({"user"})), default=-1)
        self._wanted: range = range(0)

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
            # A body without its messages would not be a conversation.
            draft.frames[outer] = replace(draft.frames[outer], also=draft.frames[array].ends)
        self._fill_frames()
        return draft.build(layout, self._wanted)

    def _open(self, span: tuple[int, int], parent: int | None) -> int:
        unit = self._draft.add(*span, "bracket", parent, protected=True)
        return self._draft.open_frame(Frame("json", unit, None, parent))

    def _members(self, members: Sequence[Laid], outer: int | None, most: int) -> None:
        """What a request body has beside its messages: each member whole, or the elements of its array."""
        draft = self._draft
        found = plan([member for member in members if member.inside], most // 2)
        if found is None or sum(3 + len(member.elements) for member in members) > most // 2:
            if members:
                draft.add(members[0].start, members[-1].end, "json_member", outer)
            return
        for member in members:
            if member.inside and outer is not None:
                frame = self._frame(-1 - member.start, outer)
                self._shells(found, frame).add(member, outer, frame, is_protected=False)
            elif member.elements:
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
            return
        for first, last in runs(self._groups, messages, most):
            self._draft.open_document(messages[first].start)
            self._draft.add(messages[first].start, messages[last - 1].end, "json_member", array)

    def _add_message(self, number: int, array: int, found: Plan) -> None:
        laid, group = self._layout.messages[number], self._groups[number]
        is_protected = number in self._protected
        if self._sizes[group] == 1 and not any(found.has_calls or not hole.is_call for hole in laid.holes()):
            # Nothing in it could be chosen: an image, a call without arguments. It is kept or dropped whole.
            kind: UnitKind = "bracket" if is_protected else "json_member"
            self._draft.add(laid.start, laid.end, kind, array, protected=is_protected)
            return
        frame, first = self._frame(group, array), len(self._draft.units)
        self._shells(found, frame).add(laid, array, frame, is_protected=is_protected)
        if number == self._last_user:
            self._wanted = range(first, len(self._draft.units))

    def _shells(self, found: Plan, frame: int) -> Shells:
        return Shells(self._draft, self._layout.source, self._segment_text, found, self._ends[frame])

    def _frame(self, group: int, array: int) -> int:
        if group not in self._frame_of:
            self._frame_of[group] = self._draft.open_frame(
                Frame("message", len(self._draft.units), None, array)
            )
            self._ends[self._frame_of[group]] = []
        return self._frame_of[group]

    def _fill_frames(self) -> None:
        for frame, ends in self._ends.items():
            close = ends[-1] if len(ends) > 1 else None
            parent = self._draft.frames[frame].parent
            self._draft.frames[frame] = Frame("message", ends[0], close, parent, tuple(ends[1:-1]))
        self._draft.let_empty_frames_be_chosen(self._ends)


def _protected(conversation: Conversation) -> frozenset[int]:
    """Messages whose JSON is kept where there is room: the system's, and the user's last."""
    return frozenset(_by_role(conversation, _SYSTEM) + _by_role(conversation, frozenset({"user"}))[-1:])


def _by_role(conversation: Conversation, roles: frozenset[str]) -> list[int]:
    return [number for number, message in enumerate(conversation.messages) if message.role in roles]
