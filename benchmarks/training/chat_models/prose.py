"""Reads a folder of public data and makes clean English of it, for the embedded models to learn.

The text stays in that folder: the repository holds only what was learnt from it (see NOTICE).
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

MANY_DIGITS = 4
FILES = ("nq_open_oracle", "qmsum_train", "xquad_en", "xquad_de", "xquad_zh")
_MARK = re.compile(r"\{\w+\}|<\w+>")
_SPACE_BEFORE = re.compile(r" +([,.?!;:%)]|'(?:s|t|re|ve|m|ll|d)\b|n't\b)")
_HYPHEN = re.compile(r"(\w) - (\w)")
_HESITATION = re.compile(r"(?:, )?\b(?:uh|um|mm-hmm|hmm|mm|er)\b,?", re.IGNORECASE)
_STUTTER = re.compile(r"\b(\w+)(?:,? \1\b)+", re.IGNORECASE)
_ASIDE = re.compile(r" ?\([^()]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")


class CorpusMissing(Exception):
    """The training folder, or a file of it, is not there."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Rows of each source, as they were read."""

    passages: tuple[dict[str, Any], ...]
    meetings: tuple[dict[str, Any], ...]
    paragraphs: dict[str, tuple[dict[str, Any], ...]]
    small_talk: tuple[dict[str, Any], ...]


def read_corpus(folder: Path) -> Corpus:
    """Raises `CorpusMissing`, naming the file, where one of `FILES` cannot be read."""
    rows = {name: _read_rows(folder / f"{name}.jsonl.gz") for name in FILES}
    talk = resources.files(__package__).joinpath("small_talk.jsonl").read_text(encoding="utf-8")
    return Corpus(
        passages=rows["nq_open_oracle"],
        meetings=rows["qmsum_train"],
        paragraphs={lang: rows[f"xquad_{lang}"] for lang in ("en", "de", "zh")},
        small_talk=tuple(json.loads(line) for line in talk.splitlines()),
    )


def _read_rows(path: Path) -> tuple[dict[str, Any], ...]:
    if not path.is_file():
        raise CorpusMissing(f"training data: {path} is not there")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def clean_speech(text: str) -> str:
    """A transcript's spaced punctuation and `{disfmarker}` marks, made into ordinary prose."""
    text = re.sub(r"\s+", " ", _MARK.sub("", text))
    text = _SPACE_BEFORE.sub(r"\1", _HYPHEN.sub(r"\1-\2", text))
    text = re.sub(r"\(\s+", "(", re.sub(r"([,.])(?:\s*[,.])+", r"\1", text))
    text = _STUTTER.sub(r"\1", re.sub(r"\s+", " ", _HESITATION.sub("", text))).strip(" ,")
    return text[:1].upper() + text[1:]


def first_sentences(text: str, limit: int) -> str:
    """Whole sentences from the start, up to `limit` characters; at least one.

    Asides in parentheses go, and so do later sentences full of digits: a small model learns nothing from
    dates but to write more of them.
    """
    kept = ""
    for sentence in SENTENCE_END.split(" ".join(_ASIDE.sub("", text).split())):
        if kept and len(kept) + len(sentence) > limit:
            break
        if not kept or count_digits(sentence) < MANY_DIGITS:
            kept = f"{kept} {sentence}".strip()
    return kept


def count_digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


def english_prose(corpus: Corpus) -> Iterator[str]:
    """Running English text, for the tokenizer."""
    for row in corpus.passages:
        yield f"{row['title']}\n\n{row['text']}"
    for paragraph in corpus.paragraphs["en"]:
        yield paragraph["context"]
    for meeting in corpus.meetings:
        for query in meeting["specific_query_list"]:
            yield clean_speech(query["answer"])
        yield from (clean_speech(turn["content"]) for turn in meeting["meeting_transcripts"][::4])
