"""READMEs in Markdown of packages that are installed: a sentence, a row of a table or a line of a fence is asked for.

Questions have the section's heading and rare words of what is asked for, but never all of it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from random import Random

from benchmarks.evaluation.case import Case, Need, seeded

SHORTEST, LONGEST = 8_000, 60_000
CASES = 72
_NPM = Path("/usr/lib/node_modules/npm/node_modules")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<text>\S.*)")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_ROW = re.compile(r"[ \t]*\|?[^|\n]+\|.*\|?[ \t]*")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-{3,}:?[ \t]*\|[-:| \t]*")
_WORD = re.compile(r"[^\W\d_]{4,}")
_LINK = re.compile(r"\]\([^()\s]*\)|<[^<>]*>|[*`]")


@dataclass(frozen=True, slots=True)
class Asked:
    question: str
    start: int
    end: int


def readmes() -> list[tuple[str, str]]:
    """Names and texts of usual lengths, in an order that has nothing to do with their names."""
    found: dict[str, str] = {}
    for package in distributions():
        about = package.metadata.json
        if "markdown" in str(about.get("description_content_type")):
            found[f"pypi {package.name}"] = str(about.get("description") or "")
    for path in sorted([*_NPM.glob("*/README.md"), *_NPM.glob("@*/*/README.md")]):
        found[f"npm {'/'.join(path.parts[6:-1])}"] = path.read_text(encoding="utf-8", errors="replace")
    usual = sorted(
        (name, text)
        for name, text in found.items()
        if SHORTEST <= len(text) <= LONGEST and len(re.findall(r"(?m)^[ \t]*```", text)) % 2 == 0
    )
    if not usual:
        print("no READMEs in Markdown among the installed packages", file=sys.stderr)
    seeded("readmes").shuffle(usual)
    return usual


def cases(suite: str = "markdown_readmes") -> Iterator[Case]:
    """Sentences, rows and lines in turn, of another README each; half of the READMEs are held out."""
    made = 0
    for number, (name, text) in enumerate(readmes()):
        for kind in ("sentence", "row", "line"):
            rng = seeded(f"{kind} {name}")
            asked = _MAKERS[kind](text, rng)
            if asked is None:
                continue
            need = Need(text[asked.start : asked.end], ((asked.start, asked.end),))
            yield Case(
                suite, f"{suite} {kind} {name}", asked.question, text, ((0, len(text)),), evidence=need.spans,
                is_held_out=number % 2 == 1, needs=(need,),
            )  # fmt: skip
            made += 1
            if made == CASES:
                return


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str
    section: str
    is_code: bool


def _lines(text: str) -> list[_Line]:
    found, at, section, is_code = list[_Line](), 0, "", False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            is_code = not is_code
        elif found and not is_code and _UNDERLINE.fullmatch(line.rstrip()):
            section = found.pop().text
        else:
            heading = None if is_code else _HEADING.match(line)
            section = heading["text"].strip("# \n") if heading else section
            if not heading:
                found.append(_Line(at, line.rstrip(), section, is_code))
        at += len(line)
    return found


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(_LINK.sub(" ", text))))


def _rare(text: str, counts: Counter[str], most: int) -> list[str]:
    """The rarest of its words, in the order of the text."""
    words = _words(text)
    picked = sorted(words, key=lambda word: (counts[word.lower()], -len(word)))[:most]
    return [word for word in words if word in picked]


def _counts(text: str) -> Counter[str]:
    return Counter(word.lower() for word in _WORD.findall(text))


def _sentence(text: str, rng: Random) -> Asked | None:
    lines = [
        line for line in _lines(text) if not line.is_code and 60 <= len(line.text) <= 300 and line.section
    ]
    lines = [line for line in lines if line.text[0].isalpha() and line.text.endswith(".")]
    return _of_words(lines, _counts(text), rng, "What does it say about {words} under {section}?")


def _line(text: str, rng: Random) -> Asked | None:
    lines = [line for line in _lines(text) if line.is_code and len(_words(line.text)) >= 3 and line.section]
    return _of_words(lines, _counts(text), rng, "Which line of the example under {section} has {words}?")


def _of_words(lines: Sequence[_Line], counts: Counter[str], rng: Random, question: str) -> Asked | None:
    for line in rng.sample(lines, len(lines)):
        words = _rare(line.text, counts, 2)
        if len(words) == 2 and all(counts[word.lower()] <= 3 for word in words):
            asked = question.format(words=" and ".join(words), section=line.section)
            return Asked(asked, line.start, line.start + len(line.text))
    return None


def _row(text: str, rng: Random) -> Asked | None:
    """The cell of a row in a column other than the first, by the column's name and the first cell."""
    lines = [line for line in _lines(text) if not line.is_code]
    heads = [
        number for number, line in enumerate(lines)
        if number and _RULE.fullmatch(line.text) and _ROW.fullmatch(lines[number - 1].text)
    ]  # fmt: skip
    rng.shuffle(heads)
    for number in heads:
        head = _cells(lines[number - 1].text)
        rows = []
        for line in lines[number + 1 :]:
            if not _ROW.fullmatch(line.text):
                break
            rows.append((line, _cells(line.text)))
        rows = [(line, cells) for line, cells in rows if len(cells) == len(head) and cells[0]]
        if len(head) < 2 or len(rows) < 3:
            continue
        line, cells = rng.choice(rows)
        column = rng.randrange(1, len(head))
        if head[column] and cells[column] and sum(each[0] == cells[0] for _, each in rows) == 1:
            question = f"What is {head[column]} of {cells[0]}?"
            return Asked(question, line.start, line.start + len(line.text))
    return None


def _cells(row: str) -> list[str]:
    return [_LINK.sub("", cell).strip("[] ") for cell in row.strip().strip("|").split("|")]


_MAKERS = {"sentence": _sentence, "row": _row, "line": _line}
