"""A regular expression as a small tree of sets of characters, from Python's own parser."""

# ruff: noqa: RUF001 - marks of other scripts are intended
from __future__ import annotations

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from dataclasses import dataclass
from typing import Any

Letters = frozenset[str]
# One letter at least of each class that a pattern may tell apart; those that it names itself are added.
_SAMPLE = (
    "".join(map(chr, range(128)))
    + "äÉЖя中あ가ไहन्ـ\u0301。！“”„«»「」’–—·°²½\u00a0\u200b\u2028\u3000\U0001f600"
)
# More repetitions than this are as many as the text has room for.
LONG = 100


@dataclass(frozen=True)
class Chars:
    """One character out of a set."""

    letters: Letters


@dataclass(frozen=True)
class Guard:
    """Matches nothing but may fail: an anchor, or a look around, which reads what is `inside`.

    `before`: letters that may not stand before it; None where they do not matter.
    """

    before: Letters | None
    inside: Node | None = None


@dataclass(frozen=True)
class Seq:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """`greedy_for_good`: possessive, it gives nothing back."""

    node: Node
    least: int
    most: int
    greedy_for_good: bool

    @property
    def is_long(self) -> bool:
        return self.most > LONG


Node = Chars | Guard | Seq | Alt | Repeat


def read(pattern: str, flags: int) -> Node:
    return _Reader(pattern, flags).node


class _Reader:
    def __init__(self, pattern: str, flags: int) -> None:
        # Of a list of thousands of letters, some.
        self._sample = frozenset(_SAMPLE + pattern[:: 1 + len(pattern) // 1000])
        self._word = frozenset(letter for letter in self._sample if letter.isalnum() or letter == "_")
        parsed = parser.parse(pattern, flags)
        self._flags = parsed.state.flags
        self.node = self._seq(parsed)

    def _seq(self, items: Any) -> Node:
        nodes: list[Node] = []
        items = list(items)
        for at, (code, value) in enumerate(items):
            nodes.append(self._at(value, items[at + 1 :]) if code is codes.AT else self._node(code, value))
        return Seq(tuple(nodes))

    def _node(self, code: Any, value: Any) -> Node:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, inner = value
            return Repeat(self._seq(inner), int(least), int(most), code is codes.POSSESSIVE_REPEAT)
        if code is codes.SUBPATTERN:
            return self._seq(value[3])
        if code is codes.ATOMIC_GROUP:
            return Repeat(self._seq(value), 1, 1, True)
        if code is codes.BRANCH:
            return Alt(tuple(self._seq(branch) for branch in value[1]))
        if code in (codes.ASSERT, codes.ASSERT_NOT):
            return self._look(code, value)
        return Chars(frozenset(letter for letter in self._sample if self._is_one(letter, code, value)))

    def _look(self, code: Any, value: Any) -> Node:
        direction, inner = value
        node = self._seq(inner)
        if direction > 0:
            return Guard(None, node)
        if not isinstance(node, Seq) or len(node.nodes) != 1 or not isinstance(node.nodes[0], Chars):
            return Guard(None)
        letters = node.nodes[0].letters
        return Guard(letters if code is codes.ASSERT_NOT else self._sample - letters)

    def _at(self, where: Any, after: Any) -> Node:
        """What may not stand before: at \\b, letters of the kind of those that follow it."""
        if where is codes.AT_BEGINNING_STRING:
            return Guard(self._sample)
        if where is codes.AT_BEGINNING:
            many = self._flags & re.MULTILINE
            return Guard(self._sample - frozenset("\n") if many else self._sample)
        if where is codes.AT_BOUNDARY:
            follows = first(self._seq(after))
            if follows <= self._word:
                return Guard(self._word)
            if not follows & self._word:
                return Guard(self._sample - self._word)
        return Guard(None)

    def _is_one(self, letter: str, code: Any, value: Any) -> bool:
        if code is codes.ANY:
            return letter != "\n" or bool(self._flags & re.DOTALL)
        if code is codes.LITERAL:
            return self._same(letter, value)
        if code is codes.NOT_LITERAL:
            return not self._same(letter, value)
        if code is codes.IN:
            negated = value[0][0] is codes.NEGATE
            return negated != any(self._is_one(letter, *part) for part in value[negated:])
        if code is codes.RANGE:
            low, high = value
            cases = {letter, letter.lower(), letter.upper()} if self._flags & re.IGNORECASE else {letter}
            return any(len(case) == 1 and low <= ord(case) <= high for case in cases)
        if code is codes.CATEGORY:
            name = str(value)
            has = {"DIGIT": letter.isdecimal(), "SPACE": letter.isspace(), "WORD": letter in self._word}
            return has[name.rsplit("_", 1)[-1]] != ("_NOT_" in name)
        raise NotImplementedError(f"{code} in a pattern")

    def _same(self, letter: str, code: int) -> bool:
        return letter == chr(code) or bool(
            self._flags & re.IGNORECASE and letter.lower() == chr(code).lower()
        )


def letters_of(node: Node) -> Letters:
    """Every letter that can be in what it matches."""
    if isinstance(node, Chars):
        return node.letters
    if isinstance(node, Repeat):
        return letters_of(node.node)
    if isinstance(node, Seq | Alt):
        return frozenset().union(*map(letters_of, node.nodes))
    return frozenset()


def may_be_empty(node: Node) -> bool:
    if isinstance(node, Chars):
        return False
    if isinstance(node, Repeat):
        return node.least == 0 or may_be_empty(node.node)
    if isinstance(node, Seq):
        return all(map(may_be_empty, node.nodes))
    return any(map(may_be_empty, node.nodes)) if isinstance(node, Alt) else True


def first(node: Node) -> Letters:
    """The letters that what it matches can begin with."""
    if isinstance(node, Chars):
        return node.letters
    if isinstance(node, Repeat):
        return first(node.node)
    if isinstance(node, Alt):
        return frozenset().union(*map(first, node.nodes))
    found: Letters = frozenset()
    for part in node.nodes if isinstance(node, Seq) else ():
        found |= first(part)
        if not may_be_empty(part):
            break
    return found


def may_fail(node: Node) -> bool:
    """False for what matches wherever it is tried."""
    if isinstance(node, Repeat):
        return node.least > 0 and may_fail(node.node)
    if isinstance(node, Seq):
        return any(map(may_fail, node.nodes))
    return all(map(may_fail, node.nodes)) if isinstance(node, Alt) else True
