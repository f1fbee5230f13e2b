"""Matches of a unit with the query: its words, the kind of answer that it asks for, and where it is merely repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats, Group, Ints, Layout
from compression.features.words import REMEMBERED_WORDS, Words, fold, grams, split, stem
from compression.segmentation.lines import SPEAKER
from compression.source.units import FRAMING, Segmentation

MOST_WORDS = 96
MOST_GRAMS = 256
K1 = 1.2
B = 0.75


@dataclass(frozen=True)
class Query:
    """The query's distinct terms in order of appearance, and its words as they follow one another."""

    text: str
    words: tuple[str, ...]
    terms: tuple[str, ...]
    grams: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Query:
        words = tuple(fold(word) for word in split(text)[0])
        terms = tuple(dict.fromkeys(stem(word) for word in words))[:MOST_WORDS]
        pieces = tuple(dict.fromkeys(gram for word in words for gram in grams(word)))[:MOST_GRAMS]
        return cls(text, words, terms, pieces)


@dataclass(frozen=True)
class Counts:
    """Occurrences of each term of the query in each unit, (units, terms), at every level that is scored."""

    unit: Floats
    lengths: Floats
    layout: Layout

    def rarity(self, counts: Floats) -> Floats:
        """BM25's inverse document frequency of each term among these texts."""
        holding = (counts > 0).sum(axis=0)
        return np.asarray(np.log1p((len(counts) - holding + 0.5) / (holding + 0.5)), np.float32)

    def bm25(self, counts: Floats, lengths: Floats, weight: Floats) -> Floats:
        """One score a text, given what each term weighs."""
        norm = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean())))
        return np.asarray((counts * (K1 + 1) / (counts + norm[:, None])) @ weight, np.float32)


def count_words(words: Words, query: Query, terms: Ints, layout: Layout) -> Counts:
    """The query's terms by unit, from their occurrences."""
    found = terms >= 0
    return Counts(_table(words, words.units[found], terms[found], len(query.terms)), words.lengths, layout)


def terms_of(words: Words, query: Query) -> Ints:
    """The number of the query's term at each occurrence, or -1."""
    numbers = {term: number for number, term in enumerate(query.terms)}
    of = np.array([numbers.get(word, -1) for word in words.stems], np.int64)
    return of[words.ids] if len(words.ids) else words.ids


_PART_OF_NAME = re.compile(r"[A-Z]?[a-z]++|(?:[A-Z](?![a-z]))++|\d++")


def words_held(words: Words, query: Query) -> NDArray[np.bool_]:
    """(units, terms): which words of the query each unit has; `orderId` has `order` and `id`."""
    numbers = {term: number for number, term in enumerate(query.terms)}
    of_spelling = np.zeros((len(words.spellings), len(numbers)), bool)
    for at, (spelling, own) in enumerate(zip(words.spellings, words.stems, strict=True)):
        for part in (own, *_parts_of_name(spelling)):
            if part in numbers:
                of_spelling[at, numbers[part]] = True
    has = np.zeros((len(words.first), len(numbers)), bool)
    is_telling = np.asarray(of_spelling.any(axis=1))
    hit = np.flatnonzero(is_telling[words.ids]) if len(words.ids) else words.ids
    np.logical_or.at(has, words.units[hit], of_spelling[words.ids[hit]])
    return has


def _parts_of_name(spelling: str) -> list[str]:
    if spelling.islower() or not spelling.isascii() or not spelling.isalpha() or spelling.isupper():
        return []
    parts = _PART_OF_NAME.findall(spelling)
    return [stem(part.lower()) for part in parts] if len(parts) > 1 else []


def count_grams(words: Words, query: Query, layout: Layout) -> Counts:
    """Parts of the query's words among the parts of the text's, so that inflected forms count too."""
    numbers = {gram: number for number, gram in enumerate(query.grams)}
    pairs = [
        (at, numbers[gram]) for at, word in enumerate(words.folded) for gram in grams(word) if gram in numbers
    ]
    spelling, gram = np.array(pairs, np.int64).reshape(-1, 2).T
    start = np.searchsorted(spelling, np.arange(len(words.spellings)))
    size = np.bincount(spelling, minlength=len(words.spellings))
    matched = np.flatnonzero(size[words.ids]) if len(words.ids) else words.ids
    ids = words.ids[matched]
    repeats = size[ids]
    offset = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    terms = gram[np.repeat(start[ids], repeats) + offset]
    counts = _table(words, np.repeat(words.units[matched], repeats), terms, len(query.grams))
    return Counts(counts, words.lengths, layout)


def _table(words: Words, units: Ints, terms: Ints, width: int) -> Floats:
    flat = np.bincount(units * max(1, width) + terms, minlength=len(words.first) * max(1, width))
    return flat.astype(np.float32).reshape(len(words.first), max(1, width))


def longest_runs(words: Words, terms: Ints, weight: Floats) -> Floats:
    """The weight of the heaviest unbroken run of the query's words in each unit."""
    out = np.zeros(len(words.first), np.float32)
    if not len(terms):
        return out
    is_found = terms >= 0
    breaks = np.r_[True, (is_found[1:] != is_found[:-1]) | (words.units[1:] != words.units[:-1])]
    begins = np.flatnonzero(breaks)
    totals = np.add.reduceat(np.where(is_found, weight[terms], 0.0), begins)
    np.maximum.at(out, words.units[begins], totals.astype(np.float32))
    return out


def apart(counts: Floats, group: Group, weight: Floats) -> Floats:
    """Share of the query's terms in a unit, weighted by how few units of its own group have them.

    What all sentences of a paragraph mention does not distinguish them.
    """
    has = (counts > 0).astype(np.float32)
    holding = group.total(has)
    size = (group.last - group.first).astype(np.float32)[:, None]
    rarity = np.log1p((size - holding + 0.5) / (holding + 0.5)) * weight
    total = np.maximum(rarity.sum(axis=1), 1e-6)
    share: Floats = (has * rarity[group.of]).sum(axis=1) / total[group.of]
    return share


def pairs_kept(words: Words, query: Query) -> Floats:
    """Share of the query's neighbouring words that also neighbour one another in a unit."""
    wanted = list(dict.fromkeys(zip(query.words, query.words[1:], strict=False)))
    out = np.zeros(len(words.first), np.float32)
    if not wanted or len(words.ids) < 2:
        return out
    numbers = {word: number for number, word in enumerate(dict.fromkeys(query.words))}
    number_of = np.array([numbers.get(word, -1) for word in words.folded], np.int64)[words.ids]
    left, right = number_of[:-1], number_of[1:]
    near = (left >= 0) & (right >= 0) & (words.units[:-1] == words.units[1:])
    codes = left[near] * len(numbers) + right[near]
    asked = np.array([numbers[first] * len(numbers) + numbers[second] for first, second in wanted], np.int64)
    # All at once: a query of thousands of words would otherwise search the text for each of its pairs.
    hit = np.isin(codes, asked)
    of_unit = np.unique(words.units[:-1][near][hit] * len(numbers) ** 2 + codes[hit]) // len(numbers) ** 2
    np.add.at(out, of_unit, np.float32(1.0 / len(wanted)))
    return out


def verbatim(source_units: Sequence[str], query: Query) -> Floats:
    """1 where a unit holds an identifier of the query letter by letter: a key, a path, a number."""
    # A context is searched for each of these, so a long query must not have many.
    marks = [mark.strip(".,;:!?\"'`()[]{}<>") for mark in query.text.split()]
    wanted = [m for m in marks if len(m) > 2 and any(c.isdigit() or c in "-_/.@:#" for c in m)][:16]
    if not wanted:
        return np.zeros(len(source_units), np.float32)
    return np.array([sum(m in text for m in wanted) / len(wanted) for text in source_units], np.float32)


# Question words of the most common languages; others are scored without this feature.
ASKED = {
    "person": (
        r"who|whom|whose|wer|wen|wem|wessen|qui|quién|quien|quiénes|chi|quem|wie heet|кто|кого|кому|кем|^من"
        r"|किसने|कौन|किसके|kim|kimin|kime|ai|ποιος|ποια|ποιον|누가|누구",
        "谁|誰|何人|ใคร",
    ),
    "time": (
        r"when|(?:what|which) (?:year|date|day|month)|wann|welche[mns]? jahr|quand|cuándo|cuando|qué año|quando"
        r"|когда|каком году|متى|أي عام|कब|किस वर्ष|ne zaman|hangi yıl\w*|khi nào|năm nào|bao giờ|πότε|언제",  # noqa: RUF001
        "什么时候|何时|哪一年|几年|いつ|何年|เมื่อไร|เมื่อใด|เมื่อไหร่|ปีใด|ปีไหน",
    ),
    "number": (
        r"how (?:many|much|old|long|far|tall|big|large|often|high|fast)|what (?:percent|percentage|number|age|size)"
        r"|wie ?viele?|wie (?:hoch|lang|lange|alt|oft|groß)|combien|cuánt[oa]s?|quant[oiae]s?"
        r"|сколько|какое количество|كم|कितन\w*|kaç|ne kadar|bao nhiêu|mấy|πόσ\w+|몇|얼마",
        "多少|几个|幾|いくつ|いくら|กี่|เท่าไร|เท่าไหร่|เท่าใด",
    ),
    "place": (
        r"where|(?:what|which) (?:country|city|state|place)|wo|woher|wohin|où|dónde|donde|dove|onde|где|куда|откуда|أين"
        r"|कहाँ|कहां|किस देश|nerede|nereye|nereden|hangi ülke\w*|ở đâu|đâu|πού|어디\w*",
        "哪里|哪裡|在哪|何处|どこ|ที่ไหน|ประเทศใด",
    ),
    "reason": (
        r"why|how (?:did|does|do|is|are|was|were|to|can)|warum|weshalb|wieso|pourquoi|por qué|perché|por que|почему"
        r"|зачем|لماذا|क्यों|neden|niçin|tại sao|vì sao|γιατί|왜",
        "为什么|為什麼|为何|なぜ|ทำไม|เหตุใด",
    ),
    "discussion": (
        r"summari[sz]e|discuss\w*|opinion|think|thought|attitude|talk\w* about|discussion|agree\w*|conclusion|deci\w+",
        "讨论|討論|总结|議論",
    ),
}
ASKS = {
    kind: re.compile(rf"(?<!\w)(?:{spaced})(?!\w)|{unspaced}", re.IGNORECASE)
    for kind, (spaced, unspaced) in ASKED.items()
}
MONTH = re.compile(
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|märz|mai|juni|juli|oktober|dezember)\Z"
)
YEAR = re.compile(r"(?:1\d|20)\d\d$")
NUMBER_WORD = re.compile(
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million|billion"
    r"|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|hundert|tausend|millionen|milliarden)\Z"
)
COUNTED = ("number", "year", "name", "other")


def asked(query: Query) -> dict[str, float]:
    """Kinds of answer that the query asks for."""
    return {kind: float(bool(pattern.search(query.text))) for kind, pattern in ASKS.items()}


@lru_cache(REMEMBERED_WORDS)
def kind_of(spelling: str, folded: str) -> int:
    """A word's kind of answer: an index into `COUNTED`."""
    if YEAR.match(spelling) or MONTH.match(folded):
        return 1
    if spelling[0].isdigit() or NUMBER_WORD.match(folded):
        return 0
    return 2 if spelling[0].isupper() else 3


def offered(words: Words, query: Query) -> dict[str, Floats]:
    """Per unit: numbers, years, names and other words not in the query; a unit's first word is not taken for a name."""
    terms = set(query.terms)
    kinds = np.array(
        [
            4 if stem in terms else kind_of(spelling, folded)
            for spelling, folded, stem in zip(words.spellings, words.folded, words.stems, strict=True)
        ],
        np.int64,
    )
    of = kinds[words.ids] if len(words.ids) else words.ids
    is_first = np.r_[True, words.units[1:] != words.units[:-1]] if len(of) else np.zeros(0, bool)
    of = np.where(is_first & (of == 2), 3, of)
    counts = (
        np.bincount(words.units * 5 + of, minlength=len(words.first) * 5).reshape(-1, 5).astype(np.float32)
    )
    return {name: counts[:, number] for number, name in enumerate(COUNTED)}


def surfaces(texts: Sequence[str]) -> dict[str, Floats]:
    """Marks of a unit's text: a question, a quotation, brackets."""
    tests = {
        "asks": [text.rstrip().endswith(("?", "\uff1f", "\u061f")) for text in texts],
        "quotes": ['"' in text or "\u201c" in text or "\u201e" in text for text in texts],
        "brackets": ["(" in text or "\uff08" in text for text in texts],
    }
    return {name: np.array(values, np.float32) for name, values in tests.items()}


_WORD = re.compile(r"\w+")
_FEWEST = 3
_MOST_WORDS = 4_000


def echoes(query: str, text: Segmentation) -> NDArray[np.bool_]:
    """Units that repeat the query's own words in order, or a stretch of them: turns, messages, and the source's end.

    Anywhere else such a sentence may be the heading of its answer, as in a list of questions.
    """
    found = np.zeros(len(text.units), bool)
    asked = _plain(query[: 8 * _MOST_WORDS])
    if asked.count(" ") < _FEWEST + 1:
        return found
    longest = len(query) + 80
    for unit in _candidates(text):
        if text.units[unit].end - text.units[unit].start <= longest:
            found[unit] = _is_echo(text.text(unit), asked)
    for unit in _from_the_end(text):
        if text.units[unit].end - text.units[unit].start > longest or not _is_echo(text.text(unit), asked):
            break
        found[unit] = True
    return found


def _candidates(text: Segmentation) -> Iterator[int]:
    is_conversation = text.is_conversation
    for number, unit in enumerate(text.units):
        if unit.kind == "turn" or (is_conversation and unit.kind not in FRAMING):
            yield number


def _from_the_end(text: Segmentation) -> Iterator[int]:
    for number in range(len(text.units) - 1, -1, -1):
        if text.units[number].kind not in FRAMING:
            yield number


def _is_echo(unit: str, asked: str) -> bool:
    head = SPEAKER.match(unit)
    words = _plain(unit[head.end() :] if head else unit)
    return words.count(" ") > _FEWEST and words in asked


def _plain(text: str) -> str:
    """The words in lower case, each between two spaces, so that what is part of it ends with a word."""
    return f" {' '.join(_WORD.findall(text.lower()))} "
