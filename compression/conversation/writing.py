"""Units, frames and documents of a conversation: whatever is chosen, the result is a conversation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compression.conversation.layout import Hole, Laid, LaidParts, Layout, lay_out
from compression.conversation.messages import Conversation, read_conversation
from compression.conversation.plan import Plan, exchanges, plan, runs
from compression.source.units import FRAMING, Document, Frame, Segmentation, Unit, UnitKind


@dataclass(slots=True)
class Draft:
    """The units, frames and documents written so far."""

    units: list[Unit] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # offsets of documents
    first: list[int] = field(default_factory=list)  # their first units
    titles: list[int | None] = field(default_factory=list)
    paragraph: int = 0

    def open_document(self, start: int) -> None:
        self.starts.append(start)
        self.first.append(len(self.units))
        self.titles.append(None)

    def add(self, start: int, end: int, kind: UnitKind, frame: int | None, *, protected: bool = False) -> int:
        """A unit that is a paragraph of its own."""
        document = len(self.starts) - 1
        self.units.append(Unit(start, end, kind, document, self.paragraph, protected, frame))
        self.paragraph += 1
        return len(self.units) - 1

    def open_frame(self, frame: Frame) -> int:
        self.frames.append(frame)
        return len(self.frames) - 1

    def close_frame(self, number: int, start: int, end: int, *, protected: bool) -> None:
        frame = self.frames[number]
        close = self.add(start, end, "bracket", frame.parent, protected=protected)
        self.frames[number] = replace(frame, close=close)

    def graft(self, text: Segmentation, offset: int, frame: int) -> None:
        """Add the units of a text that begins at `offset`, inside `frame`, with its documents and frames."""
        units, frames, documents = len(self.units), len(self.frames), len(self.starts) - 1
        for number, document in enumerate(text.documents):
            if number:
                self.starts.append(offset + document.start)
                self.first.append(units + document.units[0])
                self.titles.append(None)
            if document.title is not None and self.titles[-1] is None:
                self.titles[-1] = units + document.title
        for unit in text.units:
            self.units.append(
                replace(
                    unit,
                    start=unit.start + offset,
                    end=unit.end + offset,
                    document=unit.document + documents,
                    paragraph=unit.paragraph + self.paragraph,
                    frame=frame if unit.frame is None else frames + unit.frame,
                )
            )
        self.frames.extend(_moved(inner, units, frames, frame) for inner in text.frames)
        self.paragraph += text.units[-1].paragraph + 1 if text.units else 0

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

    def build(self, layout: Layout, wanted: Sequence[int]) -> Segmentation:
        lasts = [*self.first[1:], len(self.units)]
        ends = [*self.starts[1:], len(layout.source)]
        documents = [
            Document(start, end, (first, last), title)
            for start, end, first, last, title in zip(
                self.starts, ends, self.first, lasts, self.titles, strict=True
            )
        ]
        return Segmentation(
            layout.source,
            tuple(self.units),
            tuple(documents),
            tuple(self.frames),
            layout.origin,
            tuple(unit for unit in wanted if self.units[unit].kind not in FRAMING),
        )


def _moved(frame: Frame, units: int, frames: int, outer: int) -> Frame:
    return Frame(
        frame.kind,
        frame.open + units,
        None if frame.close is None else frame.close + units,
        outer if frame.parent is None else frame.parent + frames,
        tuple(also + units for also in frame.also),
    )


# Cuts a text into at most that many units.
Segmenter = Callable[[str, int], Segmentation]


@dataclass(frozen=True, slots=True)
class Shells:
    """Writes messages of one exchange. `ends` collects the units that are kept with any part of it."""

    draft: Draft
    source: str
    segment_text: Segmenter
    plan: Plan
    ends: list[int]

    def add(self, laid: Laid, outer: int, frame: int, *, is_protected: bool) -> None:
        """A message in frame `outer`, its texts inside `frame`."""
        at = laid.start
        for item in self.plan.inside(laid):
            self._bracket(at, item.start, outer, is_protected=is_protected)
            self._item(item, outer, frame)
            at = item.end
        self._bracket(at, laid.end, outer, is_protected=is_protected)

    def _item(self, item: Hole | LaidParts, outer: int, frame: int) -> None:
        if isinstance(item, LaidParts):
            self._parts(item, frame)
        elif item.is_call:
            self.ends.append(self.draft.add(item.start, item.end, "json_member", outer))
        else:
            self._text(item, frame)

    def _text(self, hole: Hole, frame: int) -> None:
        text = self.source[hole.start : hole.end]
        self.draft.graft(self.segment_text(text, self.plan.most_of(hole)), hole.start, frame)

    def _bracket(self, start: int, end: int, outer: int, *, is_protected: bool = False) -> int:
        unit = self.draft.add(start, end, "bracket", outer, protected=is_protected)
        self.ends.append(unit)
        return unit

    def _parts(self, found: LaidParts, frame: int) -> None:
        """An array of parts: its brackets are kept with the message, and so are all parts but those that are texts."""
        array = self.draft.open_frame(
            Frame("json", self._bracket(found.start, found.start + 1, frame), None, frame)
        )
        for part in found.parts:
            if part.is_text:
                self._text_part(part, array)
            else:
                self._part(part, array)
        close = self._bracket(found.end - 1, found.end, frame)
        self.draft.frames[array] = replace(self.draft.frames[array], close=close)

    def _text_part(self, part: Laid, array: int) -> None:
        holes = list(part.holes())
        if not holes:
            self.draft.add(part.start, part.end, "json_member", array)
            return
        opened = self.draft.add(part.start, holes[0].start, "bracket", array)
        frame = self.draft.open_frame(Frame("string", opened, None, array))
        self._text(holes[0], frame)
        self.draft.close_frame(frame, holes[0].end, part.end, protected=False)

    def _part(self, part: Laid, array: int) -> None:
        """A call, a result, an image. A result's text is in a frame of its own, whose ends are always kept."""
        first, inside = len(self.draft.units), self.plan.inside(part)
        if not inside:
            self._bracket(part.start, part.end, array)
            return
        frame = self.draft.open_frame(Frame("string", first, None, array))
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
