"""Units, frames and documents of a conversation: whatever is chosen, the result is a conversation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compression.conversation.layout import lay_out
from compression.conversation.messages import (
    Conversation,
    Inside,
    Part,
    Parts,
    Text,
    exchanges,
    read_conversation,
    texts_in,
)
from compression.source.edits import with_markup, without
from compression.source.units import FRAMING, Builder, Frame, Segmentation, UnitKind


@dataclass(frozen=True, slots=True)
class Plan:
    """Texts have `texts` units beside one each, shared by their `letters`. With `has_calls`, arguments are units."""

    texts: int
    letters: int
    has_calls: bool

    def inside(self, part: Part) -> list[Inside]:
        """The items of a message or a part that are written by itself, between pieces of its JSON."""
        return [item for item in part.inside if self.has_calls or isinstance(item, Parts) or not item.is_call]

    def most_of(self, text: Text) -> int:
        """Units that a text may have: its share by length."""
        return 1 + self.texts * (text.end - text.start) // max(1, self.letters)

    def least(self, part: Part) -> int:
        """Units that a message has at least."""
        count = 1
        for item in self.inside(part):
            own = sum(map(self.least, item.parts)) + 2 if isinstance(item, Parts) else 1
            count += own + 1
        return count


def plan(messages: Sequence[Part], most: int) -> Plan | None:
    """None where the messages have too many parts to be cut."""
    texts = [text for message in messages for text in texts_in(message.inside)]
    letters = sum(text.end - text.start for text in texts if not text.is_call)
    for has_calls in (True, False):
        left = most - sum(map(Plan(0, letters, has_calls).least, messages))
        if left >= 0:
            return Plan(left, letters, has_calls)
    return None


def runs(groups: Sequence[int], messages: Sequence[Part], most: int) -> list[tuple[int, int]]:
    """At most `most` half-open ranges of messages, none of which parts an exchange."""
    whole = list(_closed(groups))
    width = 2 * (messages[-1].end - messages[0].start) // most + 1
    while len(whole) > most:
        whole = list(_joined(whole, messages, width))
        width *= 2
    return whole


def _closed(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The shortest ranges that part no exchange. `groups` has the first message of each one's exchange."""
    last = {group: number for number, group in enumerate(groups)}
    first, end = 0, -1
    for number, group in enumerate(groups):
        end = max(end, last[group])
        if number == end:
            yield first, number + 1
            first = number + 1


def _joined(
    found: Sequence[tuple[int, int]], messages: Sequence[Part], width: int
) -> Iterator[tuple[int, int]]:
    first, last = found[0]
    for start, end in found[1:]:
        if messages[end - 1].end - messages[first].start > width:
            yield first, last
            first = start
        last = end
    yield first, last


class Draft(Builder):
    """Writes units that are paragraphs of their own, in frames that are named: those of messages are not nested."""

    def put(self, start: int, end: int, kind: UnitKind, frame: int | None, *, protected: bool = False) -> int:
        """A unit that is a paragraph of its own."""
        self.frame = frame
        unit = self.append(start, end, kind, protected=protected)
        self.end_paragraph()
        return unit

    def begin_frame(self, frame: Frame) -> int:
        self.frames.append(frame)
        return len(self.frames) - 1

    def end_frame(self, number: int, start: int, end: int, *, protected: bool) -> None:
        frame = self.frames[number]
        close = self.put(start, end, "bracket", frame.parent, protected=protected)
        self.frames[number] = replace(frame, close=close)

    def let_empty_frames_be_chosen(self, ends: Mapping[int, Sequence[int]]) -> None:
        """Lets the first piece of JSON be chosen of an exchange that has neither text nor arguments."""
        holding: set[int] = set()
        for unit in self.units:
            frame = None if unit.kind == "bracket" else unit.frame
            while frame is not None and frame not in holding:
                holding.add(frame)
                frame = self.frames[frame].parent
        for number, found in ends.items():
            if number not in holding and all(self.units[unit].kind == "bracket" for unit in found):
                self.units[found[0]] = replace(self.units[found[0]], kind="json_member")


# Cuts a text into at most that many units.
Segmenter = Callable[[str, int], Segmentation]


@dataclass(frozen=True, slots=True)
class Shells:
    """Writes messages of one exchange. `ends` collects the units that are kept with any part of it."""

    draft: Draft
    segment_text: Segmenter
    plan: Plan
    ends: list[int]

    def add(self, message: Part, outer: int, frame: int, *, is_protected: bool) -> None:
        """A message in frame `outer`, its texts inside `frame`."""
        at = message.start
        for item in self.plan.inside(message):
            self._bracket(at, item.start, outer, is_protected=is_protected)
            self._item(item, outer, frame)
            at = item.end
        self._bracket(at, message.end, outer, is_protected=is_protected)

    def _item(self, item: Inside, outer: int, frame: int) -> None:
        if isinstance(item, Parts):
            self._parts(item, frame)
        elif item.is_call:
            self.ends.append(self.draft.put(item.start, item.end, "json_member", outer))
        else:
            self._text(item, frame)

    def _text(self, found: Text, frame: int) -> None:
        text = self.segment_text(self.draft.source[found.start : found.end], self.plan.most_of(found))
        self.draft.frame = frame
        self.draft.graft(with_markup(text), found.start)

    def _bracket(self, start: int, end: int, outer: int, *, is_protected: bool = False) -> int:
        unit = self.draft.put(start, end, "bracket", outer, protected=is_protected)
        self.ends.append(unit)
        return unit

    def _parts(self, found: Parts, frame: int) -> None:
        """An array of parts: its brackets are kept with the message, and so are all parts but those that are texts."""
        array = self.draft.begin_frame(
            Frame("json", self._bracket(found.start, found.start + 1, frame), None, frame)
        )
        for part in found.parts:
            if part.is_text:
                self._text_part(part, array)
            else:
                self._part(part, array)
        close = self._bracket(found.end - 1, found.end, frame)
        self.draft.frames[array] = replace(self.draft.frames[array], close=close)

    def _text_part(self, part: Part, array: int) -> None:
        text = next(texts_in(part.inside), None)
        if text is None:
            self.draft.put(part.start, part.end, "json_member", array)
            return
        opened = self.draft.put(part.start, text.start, "bracket", array)
        frame = self.draft.begin_frame(Frame("string", opened, None, array))
        self._text(text, frame)
        self.draft.end_frame(frame, text.end, part.end, protected=False)

    def _part(self, part: Part, array: int) -> None:
        """A call, a result, an image. A result's text is in a frame of its own, whose ends are always kept."""
        first, inside = len(self.draft.units), self.plan.inside(part)
        if not inside:
            self._bracket(part.start, part.end, array)
            return
        frame = self.draft.begin_frame(Frame("string", first, None, array))
        at = part.start
        for item in inside:
            self._bracket(at, item.start, array)
            self._item(item, array, frame)
            at = item.end
        close = self._bracket(at, part.end, array)
        self.draft.frames[frame] = replace(self.draft.frames[frame], close=close)


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
        self._draft = Draft(self._layout.source)
        self._frame_of: dict[int, int] = {}
        self._ends: dict[int, list[int]] = {}
        self._last_user = max(_by_role(conversation, frozenset({"user"})), default=-1)
        self._wanted: range = range(0)
        self._answers = [bool(message.answers) for message in conversation.messages]
        self._results: list[tuple[int, int]] = []

    def write(self, most: int) -> Segmentation:
        draft, layout = self._draft, self._layout
        outer = self._open(layout.body[0], None) if layout.body else None
        beside = max(1, most // 16)
        self._members(layout.before, outer, beside)
        array = self._open(layout.array[0], outer)
        self._add_messages(array, most - _AROUND - 2 * beside)
        draft.end_frame(array, *layout.array[1], protected=True)
        self._members(layout.after, outer, beside)
        if layout.body and outer is not None:
            draft.end_frame(outer, *layout.body[1], protected=True)
            # A body without its messages would not be a conversation.
            draft.frames[outer] = replace(draft.frames[outer], also=draft.frames[array].ends)
        self._fill_frames()
        wanted = [unit for unit in self._wanted if draft.units[unit].kind not in FRAMING]
        found = draft.build()
        return without(
            replace(found, origin=layout.origin, wanted=tuple(wanted), results=tuple(self._results))
        )

    def _open(self, span: tuple[int, int], parent: int | None) -> int:
        unit = self._draft.put(*span, "bracket", parent, protected=True)
        return self._draft.begin_frame(Frame("json", unit, None, parent))

    def _members(self, members: Sequence[Part], outer: int | None, most: int) -> None:
        """What a request body has beside its messages: each member whole, or the elements of its array."""
        draft = self._draft
        found = plan([member for member in members if member.inside], most // 2)
        if found is None or sum(3 + len(member.elements) for member in members) > most // 2:
            if members:
                draft.put(members[0].start, members[-1].end, "json_member", outer)
            return
        for member in members:
            if member.inside and outer is not None:
                frame = self._frame(-1 - member.start, outer)
                self._shells(found, frame).add(member, outer, frame, is_protected=False)
            elif member.elements:
                opened = draft.put(member.start, member.elements[0][0], "bracket", outer)
                frame = draft.begin_frame(Frame("json", opened, None, outer))
                for start, end in member.elements:
                    draft.put(start, end, "json_member", frame)
                draft.end_frame(frame, member.elements[-1][1], member.end, protected=False)
            else:
                draft.put(member.start, member.end, "json_member", outer)

    def _add_messages(self, array: int, most: int) -> None:
        messages = self._layout.messages
        found = plan(messages, most)
        if found is not None:
            for number in range(len(messages)):
                self._draft.end_document(messages[number].start)
                self._add_message(number, array, found)
            return
        for first, last in runs(self._groups, messages, most):
            self._draft.end_document(messages[first].start)
            self._draft.put(messages[first].start, messages[last - 1].end, "json_member", array)

    def _add_message(self, number: int, array: int, found: Plan) -> None:
        message, group = self._layout.messages[number], self._groups[number]
        is_protected = number in self._protected
        texts = texts_in(message.inside)
        if self._sizes[group] == 1 and not any(found.has_calls or not text.is_call for text in texts):
            # Nothing in it could be chosen: an image, a call without arguments. It is kept or dropped whole.
            kind: UnitKind = "bracket" if is_protected else "json_member"
            self._draft.put(message.start, message.end, kind, array, protected=is_protected)
            return
        frame, first = self._frame(group, array), len(self._draft.units)
        self._shells(found, frame).add(message, array, frame, is_protected=is_protected)
        if number == self._last_user:
            self._wanted = range(first, len(self._draft.units))
        if self._answers[number]:
            self._results.append((first, len(self._draft.units)))

    def _shells(self, found: Plan, frame: int) -> Shells:
        return Shells(self._draft, self._segment_text, found, self._ends[frame])

    def _frame(self, group: int, array: int) -> int:
        if group not in self._frame_of:
            self._frame_of[group] = self._draft.begin_frame(
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
