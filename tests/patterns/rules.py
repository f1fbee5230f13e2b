"""What makes a regular expression cost more than the length of the text, told from its shape.

Python's engine tries again wherever a repetition could have stopped elsewhere. The rules refuse shapes that leave it
many places to try; they may refuse a harmless one, never the other way about for what these trees can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tests.patterns.tree import (
    Alt,
    Chars,
    Guard,
    Letters,
    Node,
    Repeat,
    Seq,
    first,
    letters_of,
    may_be_empty,
    may_fail,
    read,
)


def faults(pattern: str, flags: int, *, searched: bool) -> list[str]:
    """Why it may cost more than linear time; `searched`: it is tried at every place and not at one."""
    node = read(pattern, flags & ~re.DEBUG)
    found = [*_inside(node, ())]
    if searched:
        found += _from_every_start(node, (), frozenset(), ())
    return sorted(set(found))


def _inside(node: Node, after: tuple[Node, ...]) -> Iterator[str]:
    """Faults of one try: what follows `node` is `after`."""
    if isinstance(node, Seq):
        for at, part in enumerate(node.nodes):
            yield from _inside(part, (*node.nodes[at + 1 :], *after))
    elif isinstance(node, Alt):
        for branch in node.nodes:
            yield from _inside(branch, after)
    elif isinstance(node, Repeat):
        yield from _repeated(node, after)
    elif isinstance(node, Guard) and node.inside is not None:
        yield from _inside(node.inside, ())


def _repeated(node: Repeat, after: tuple[Node, ...]) -> Iterator[str]:
    again = (node.node,) if node.is_long else ()
    # What a possessive repetition has taken is never given back, so nothing after it makes it try again.
    yield from _inside(node.node, again if node.greedy_for_good else (*again, *after))
    if node.greedy_for_good or not node.is_long:
        return
    own = letters_of(node.node)
    if not isinstance(node.node, Seq) or not any(map(may_fail, after)):
        return
    if _overlaps(node.node):
        yield "an alternation in a repetition, of which several branches can begin alike"
    if (other := _later_repetition(own, after)) is not None:
        yield f"two repetitions after one another share letters ({other})"
    yield from _nested(node.node, node.node, ())


def _overlaps(node: Node) -> bool:
    if isinstance(node, Seq) and len(node.nodes) == 1:
        return _overlaps(node.nodes[0])
    if not isinstance(node, Alt):
        return False
    starts = [first(branch) for branch in node.nodes]
    return any(a & b for at, a in enumerate(starts) for b in starts[at + 1 :])


def _later_repetition(own: Letters, after: Sequence[Node], between: tuple[Node, ...] = ()) -> str | None:
    """A letter of a long repetition that can begin where one of `own` could still go on, and then fail.

    `between` must stand before it: where that is no part of what it repeats, it reads other letters for each place.
    """
    for at, node in enumerate(after):
        rest = after[at + 1 :]
        if isinstance(node, Guard):
            continue
        if isinstance(node, Alt):
            for branch in node.nodes:
                if (found := _later_repetition(own, (branch, *rest), between)) is not None:
                    return found
        elif isinstance(node, Seq):
            return _later_repetition(own, (*node.nodes, *rest), between)
        elif isinstance(node, Repeat):
            shared = letters_of(node.node) & own
            fits = all(letters_of(part) & letters_of(node.node) for part in between)
            if node.is_long and shared and fits and any(map(may_fail, rest)):
                return repr(min(shared))
            if (found := _later_repetition(own, (node.node, *rest), between)) is not None:
                return found
        if not may_be_empty(node) and not first(node) & own:
            return None
        if isinstance(node, Alt) and not may_be_empty(node):
            return None
        if not may_be_empty(node):
            between = (*between, node)
    return None


def _nested(body: Node, node: Node, after: tuple[Node, ...]) -> Iterator[str]:
    """A long repetition inside a long one, of which either could take what follows."""
    if isinstance(node, Seq):
        for at, part in enumerate(node.nodes):
            yield from _nested(body, part, (*node.nodes[at + 1 :], *after))
    elif isinstance(node, Alt):
        for branch in node.nodes:
            yield from _nested(body, branch, after)
    elif isinstance(node, Repeat) and not node.greedy_for_good:
        if node.is_long and first(Seq((*after, body))) & letters_of(node.node):
            yield "a repetition in a repetition, of which either could take the same letter"
        yield from _nested(body, node.node, after)


def _from_every_start(
    node: Node, before: tuple[Node, ...], guard: Letters, after: tuple[Node, ...]
) -> list[str]:
    """Faults of trying at every place: a run that is read again from each of its letters, in vain.

    `before` is what must match first, `guard` the letters that may not stand before the start.
    """
    if isinstance(node, Guard):
        return _from_every_start(node.inside, before, guard, (node,)) if node.inside else []
    if isinstance(node, Alt):
        return [fault for branch in node.nodes for fault in _from_every_start(branch, before, guard, after)]
    if isinstance(node, Chars):
        return []
    if isinstance(node, Repeat):
        return _run(node, before, guard, after)
    found: list[str] = []
    for at, part in enumerate(node.nodes):
        found += _from_every_start(part, before, guard, (*node.nodes[at + 1 :], *after))
        if isinstance(part, Guard) and not before:
            guard |= part.before or frozenset()
        elif not may_be_empty(part):
            before = (*before, part)
    return found


def _run(node: Repeat, before: tuple[Node, ...], guard: Letters, after: tuple[Node, ...]) -> list[str]:
    found = _from_every_start(node.node, before, guard, after)
    own = letters_of(node.node)
    # A start inside the run: the letter before it is one of the run's, and what comes before the run fits into it.
    inside = own - guard
    fits = all(first(part) & own for part in before) and (not before or bool(first(before[0]) & own))
    if node.is_long and inside and fits and any(map(may_fail, after)):
        found.append(f"a run of {min(inside)!r} is read again from each of its letters")
    return found
