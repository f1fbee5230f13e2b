"""The main text of a page, told from what is around it by structure alone: landmarks, links, lengths and nesting."""

from collections.abc import Sequence

from compression.segmentation.lines import ends_sentence
from compression.segmentation.markup import HEADINGS, Block, Element
from compression.segmentation.page_reader import PageReader

# Characters of text beside links that make a block prose: those of a sentence, or more where it ends in no mark.
_SENTENCE = 25
_PROSE = 80
# An ideograph says as much as two or three letters.
_DENSE = 0x2E80
_DENSE_WEIGHT = 3
# An element that holds this share of the prose around it is where the page's text is.
_NEARLY_ALL = 0.7
_LINKED = 0.5
# Characters of an article before its comments, and how many of these there are, most of them with a label.
_ARTICLE = 800
_FEWEST_ITEMS = 5
_MOST_ITEMS = 0.8
_SMALL = 0.25


def find_main(reader: PageReader, view: str) -> list[bool]:
    """For each block of the page, whether it is a part of its main text. Where nothing is prose, all are."""
    blocks, elements = reader.blocks, reader.elements
    prose = [_prose(block, elements, view) for block in blocks]
    letters, linked = (
        _sums(elements, blocks, values)
        for values in ([block.letters for block in blocks], [block.linked for block in blocks])
    )
    mass = _sums(elements, blocks, prose)
    if not mass[0]:
        return [not elements[block.element].is_aside for block in blocks]
    top = _container(elements, _sums(elements, blocks, _not_filled_in(blocks, elements, prose, mass)))
    top = _with_what_is_answered(top, blocks, elements, prose)
    inside = _inside(elements, top)
    beside = _beside(elements, inside, letters, linked, mass, mass[top])
    found = [
        _is_main(block, elements, inside, beside, prose=amount)
        for block, amount in zip(blocks, prose, strict=True)
    ]
    if not any(found):
        found = [inside[block.element] for block in blocks]
    return [
        is_main or (inside[block.element] and 0 < at < len(found) - 1 and found[at - 1] and found[at + 1])
        for at, (block, is_main) in enumerate(zip(blocks, found, strict=True))
    ]


def _weight(block: Block, view: str) -> int:
    text = view[block.start : block.end]
    if text.isascii():
        return block.letters
    return block.letters + (_DENSE_WEIGHT - 1) * sum(ord(each) >= _DENSE for each in text)


def _prose(block: Block, elements: Sequence[Element], view: str) -> int:
    """How much text a block has that nobody writes in a menu; 0 for links, headings and what is said to be beside."""
    if elements[block.element].is_aside or block.kind == "heading":
        return 0
    own = _weight(block, view) * (block.letters - block.linked) // max(1, block.letters)
    if own < _SENTENCE or (own < _PROSE and block.linked > _LINKED * block.letters):
        return 0
    return own if own >= _PROSE or ends_sentence(view[max(block.start, block.end - 12) : block.end]) else 0


def _sums(elements: Sequence[Element], blocks: Sequence[Block], values: Sequence[int]) -> list[int]:
    """Sums over all blocks in each element, however deep."""
    sums = [0] * len(elements)
    for block, value in zip(blocks, values, strict=True):
        sums[block.element] += value
    for number in range(len(elements) - 1, 0, -1):
        sums[elements[number].parent] += sums[number]
    return sums


def _not_filled_in(
    blocks: Sequence[Block], elements: Sequence[Element], prose: Sequence[int], mass: Sequence[int]
) -> list[int]:
    """The prose without what stands beside a field: a choice of consent, a form. A page that is one keeps its own."""
    beside = [False] * len(elements)
    for number, element in enumerate(elements):
        is_small = element.has_fields and mass[number] < _LINKED * mass[0]
        beside[number] = is_small or (element.parent >= 0 and beside[element.parent])
    left = [0 if beside[block.element] else own for block, own in zip(blocks, prose, strict=True)]
    return left if any(left) else list(prose)


def _with_what_is_answered(
    top: int, blocks: Sequence[Block], elements: Sequence[Element], prose: Sequence[int]
) -> int:
    """`top`, or where it is a list of comments the innermost element around it with the text that they are about."""
    if not _is_feed(top, blocks, elements, prose):
        return top
    inner = _inside(elements, top)
    at = next(number for number, block in enumerate(blocks) if inner[block.element])
    before, around = 0, elements[top].parent
    while around > 0:
        # Elements are numbered as they open: what began after this one, which is open still, is in it.
        while at > 0 and blocks[at - 1].element >= around:
            at -= 1
            before += prose[at]
        if before >= _ARTICLE:
            return around
        around = elements[around].parent
    return top


def _is_feed(top: int, blocks: Sequence[Block], elements: Sequence[Element], prose: Sequence[int]) -> bool:
    """Elements, each with prose and with a few words that are none: who said it, when, a link to answer."""
    item = [0] * len(elements)
    for number in range(top + 1, len(elements)):
        parent = elements[number].parent
        item[number] = number if parent == top and elements[number].name not in _LINES else item[parent]
    said, labelled = set[int](), set[int]()
    for block, own in zip(blocks, prose, strict=True):
        if own:
            said.add(item[block.element])
        elif block.kind != "heading":
            labelled.add(item[block.element])
    said.discard(0)
    return len(said) >= _FEWEST_ITEMS and len(said & labelled) >= _MOST_ITEMS * len(said)


# These are text themselves: one of them is not where a page has its text.
_LINES = HEADINGS | {"p", "pre", "dt", "caption", "figcaption", "blockquote"}
_BLOCKS = _LINES | {"li", "dd", "tr"}


def _container(elements: Sequence[Element], mass: Sequence[int]) -> int:
    """The innermost element that holds nearly all of the prose; the article or main around it, where there is one."""
    best = list(range(len(elements)))
    for number in range(1, len(elements)):
        parent = elements[number].parent
        if elements[number].name in _BLOCKS:
            continue
        if best[parent] == parent or mass[number] > mass[best[parent]]:
            best[parent] = number
    at = 0
    while best[at] != at and mass[best[at]] >= _NEARLY_ALL * mass[at] and mass[best[at]]:
        at = best[at]
    outer = at
    while outer > 0:
        if elements[outer].name in ("article", "main"):
            return outer
        outer = elements[outer].parent
    return at


def _inside(elements: Sequence[Element], top: int) -> list[bool]:
    inside = [False] * len(elements)
    for number, element in enumerate(elements):
        inside[number] = number == top or (element.parent >= 0 and inside[element.parent])
    return inside


_GROUPS = frozenset(
    {"ul", "ol", "dl", "div", "section", "table", "p", "figure", "details", "fieldset", "center", "form"}
)


def _beside(
    elements: Sequence[Element],
    inside: Sequence[bool],
    letters: Sequence[int],
    linked: Sequence[int],
    mass: Sequence[int],
    all_prose: int,
) -> list[bool]:
    """Elements within the main one that are a list of links, or fields to fill in with a little text."""
    found = [False] * len(elements)
    for number in range(1, len(elements)):
        element = elements[number]
        is_group = element.name in _GROUPS and inside[number] and letters[number] > 0
        is_links = linked[number] > _LINKED * letters[number] and mass[number] <= _SMALL * linked[number]
        has_fields = element.has_fields and mass[number] < _SMALL * all_prose
        found[number] = found[element.parent] or (is_group and (is_links or has_fields))
    return found


def _is_main(
    block: Block, elements: Sequence[Element], inside: Sequence[bool], beside: Sequence[bool], *, prose: int
) -> bool:
    element = elements[block.element]
    if element.name == "h1":
        return True
    if element.is_aside or not inside[block.element] or beside[block.element]:
        return False
    return prose > 0 or block.linked <= _LINKED * block.letters
