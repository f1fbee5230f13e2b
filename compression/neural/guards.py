"""Which parts of prose must not be cut: what would become wrong, not merely shorter, without a word inside it."""

# ruff: noqa: RUF001 - marks of other scripts are intended
import re
from collections.abc import Iterable
from dataclasses import dataclass

from compression.text.scripts import DENSE

Span = tuple[int, int]

_MONTHS = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    "Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember"
)
_UNITS = (
    r"%|‰|°\s?[CFK]?|percent|per cent|Prozent|(?:hundred|thousand|million|billion|trillion|Millionen|Milliarden)"
    r"(?:\s(?:dollars|euros|pounds|people))?|[kKMGT]i?B|[kmcµn]?m²?|[kmµ]?g|[mµn]?s|k?Hz|[kMG]Hz|[kM]?W|[kM]?V|mAh|"
    r"mph|km/h|hours?|minutes?|seconds?|days?|weeks?|months?|years?|miles?|feet|inch(?:es)?|metres?|meters?|"
    r"kilomet(?:er|re)s?|kilograms?|tons?|tonnes?|dollars?|euros?|pounds?|yen|USD|EUR|GBP|Uhr|Jahre?n?|am|pm|BC|AD|BCE|CE"
)
_CJK_UNITS = "年月日時时点點分秒億亿万萬千百元円圆人个個名歳岁米度倍次回号號％℃公里吨"
# From the first digit on; what belongs before it is looked for backwards, which is much quicker than trying everywhere.
_NUMBER = re.compile(
    rf"\d(?:[.,:/×x^eE–-]*+\d)*+[{_CJK_UNITS}]*+(?:(?:st|nd|rd|th|\.)?\s(?:of\s)?(?:{_MONTHS})\b\.?(?:,?\s\d{{2,4}}\b)?"
    rf"|(?:st|nd|rd|th)\b(?:,\s\d{{4}}\b)?|,\s(?:1|2)\d{{3}}\b|[\s-]?(?:{_UNITS})(?![^\W_]))?"
)
_BEFORE_NUMBER = re.compile(
    rf"(?:\b(?:{_MONTHS})\.?\s|(?:\b[A-Z]{{2,3}})?[-+±~<>≤≥=$€£¥₹#§]{{1,2}}\s?|\b[A-Za-z]+-?)\Z"
)
_LONGEST_BEFORE = 14
_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{0,20}://|\bwww\.)[^\s<>\"'”’）】]+", re.IGNORECASE)
_MAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/][\w.@%+-]+){2,}[\\/]?")
_DOTTED = re.compile(r"\b\w++(?:\.\w++){2,}+")
_TICKS = re.compile(r"```[\s\S]*?(?:```|\Z)|`[^`\n]+`")
_CALL = re.compile(r"\b\w{1,64}(?:\.\w{1,64}){0,8}\([^()\n]*\)")
_SNAKE = re.compile(r"\b[A-Za-z](?=\w*_\w)\w++")
_OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*=?\S*")
_BRACES = re.compile(r"\{[^{}\n]*\}|\[[^\[\]\n]*\]|<[A-Za-z/][^<>\n]*>")
_OPERATOR = re.compile(r"\b\w+\s?(?:==|!=|<=|>=|:=|=>|->|\+=|&&|\|\|)\s?\S+")
_QUOTE = re.compile(
    r"“[^“”]{1,400}”|„[^„“”]{1,400}[“”]|«[^«»]{1,400}»|「[^「」]{1,400}」|『[^『』]{1,400}』|‘[^‘’\n]{1,200}’(?!\w)"
    r"|(?<![\w\"])\"[^\"\n]{1,400}\"(?!\w)|(?<![\w'])'[^'\n]{2,200}'(?!\w)"
)
_TABLE_LINE = re.compile(r"^[^\n|]*\|[^\n|]*\|[^\n]*$|^[^\n\t]+\t[^\n\t]+\t[^\n]*$", re.MULTILINE)
_NEGATION = (
    r"not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|unless|except|hardly|barely|scarcely|lacks?|"
    r"fail(?:s|ed)?\sto|\w+n['’]t|nicht|kein\w*|nie|niemals|ohne|weder|noch|außer|ne|pas|jamais|sans|aucune?|ni|nunca|"
    r"sin|jamás|ningun\w*|não|nem|sem|non|mai|senza|не|ни|нет|без|никогда|nie|bez|niet|geen|zonder|inte|ikke|ej"
)
# With two words after it, and the verb before: "is not a suspect", "kein einziges Mal".
_NEGATED = re.compile(rf"\b(?:{_NEGATION})\b(?:[ \t]+[^\s,;.!?]+){{0,2}}", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[^\W\d]+[ \t]+\Z")
_LONGEST_WORD = 24
_NEGATED_DENSE = re.compile(
    f"(?:不|没有?|沒有?|無|无|未|非|勿|莫|别)[{DENSE}]{{1,3}}|[{DENSE}]{{1,3}}(?:ない|ません|なかった|ず|ぬ)|ไม่[{DENSE}]{{1,4}}"
)
_CAPITAL = "A-ZÀ-ÖØ-ÞŁŚŠŽČĆŃŐŰΑ-ΩА-ЯЁ"
_NAME = re.compile(
    rf"(?<![\w'’])(?<!\w\.)[{_CAPITAL}][\w'’.]{{0,40}}+"
    rf"(?:[ -](?:(?:of|de|du|von|van|der|la|al|the)[ ])?[{_CAPITAL}][\w'’]*)+"
)


@dataclass(frozen=True, slots=True)
class Guards:
    """`locked` spans stay whole wherever their unit stays; `bound` spans stay or go as one piece. Sorted, disjoint."""

    locked: tuple[Span, ...]
    bound: tuple[Span, ...]


# Each pattern with a character without which it cannot match: most prose has none of them.
_LOCKED = (
    (":/", _URL),
    ("www.", _URL),
    ("@", _MAIL),
    ("/", _PATH),
    ("\\", _PATH),
    (".", _DOTTED),
    ("`", _TICKS),
    ("(", _CALL),
    ("_", _SNAKE),
    ("-", _OPTION),
    ("{", _BRACES),
    ("[", _BRACES),
    ("<", _BRACES),
    ("=", _OPERATOR),
    ("->", _OPERATOR),
    ("&&", _OPERATOR),
    ("||", _OPERATOR),
    ("|", _TABLE_LINE),
    ("\t", _TABLE_LINE),
    ("", _QUOTE),
)


def find_guards(text: str) -> Guards:
    """Numbers with their units, addresses, code, tables and quotations are locked.

    Bound are a negation with what it negates, and a name of several words. Offsets count code points of `text`.
    """
    patterns = dict.fromkeys(pattern for mark, pattern in _LOCKED if mark in text)
    locked = [match.span() for pattern in patterns for match in pattern.finditer(text)]
    locked += [
        (_before(_BEFORE_NUMBER, text, match.start(), _LONGEST_BEFORE), match.end())
        for match in _NUMBER.finditer(text)
    ]
    bound = [
        (_before(_WORD_BEFORE, text, match.start(), _LONGEST_WORD), match.end())
        for match in _NEGATED.finditer(text)
    ]
    bound += [match.span() for pattern in (_NEGATED_DENSE, _NAME) for match in pattern.finditer(text)]
    return Guards(tuple(_merged(locked)), tuple(_merged(bound)))


def _before(pattern: re.Pattern[str], text: str, at: int, longest: int) -> int:
    """Where what the pattern finds right before `at` begins; `at` where it finds nothing."""
    found = pattern.search(text, max(0, at - longest), at)
    return found.start() if found else at


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Overlapping spans made one, in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif end > start:
            out.append((start, end))
    return out
