"""What kind of answer a question asks for, and what kinds of answer a unit could give beyond the question's words."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from compression.features.matching import Query
from compression.features.occurrences import Words
from compression.features.runs import Floats
from compression.features.word_forms import REMEMBERED_WORDS

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
    """Which kinds of answer the query asks for."""
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
