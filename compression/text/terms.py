"""Terms of a text in any script: words where spaces part them, pairs of characters where nothing does."""

# ruff: noqa: RUF001

import re

from compression.text.scripts import DENSE

_ANY_DENSE = re.compile(f"[{DENSE}]")
_WORD = re.compile(r"\w+")
_RUN = re.compile(f"[{DENSE}]+|[^\\W{DENSE}]+")

# What a question is made of rather than about. Rare enough terms need no list: BM25 weighs them.
_STOP_WORDS = """
s t d m ll re ve don a an the of in on at to for from by with and or is are was were be been do does did has
have had what which who whom whose when where why how many much it its this that these those as about into
than then there their they he she his her him i you we me my your our us them can could would should will may
might not no if so such der die das ein eine einer eines einem den dem des und oder ist sind waren wer wann wo
wie warum welche welcher welches im am auf zu von mit für bei nach aus el la los las un una de del y o es son
fue en por para con que qué quién cuándo dónde cómo cuál cuánto cuántos le les du et ou est sont dans par pour
avec qui quoi quand où comment pourquoi quel quelle combien и в на с по к из от за о что кто где когда как
какой какая какие сколько это
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """Lower-cased terms in order, repeated as they are. A single character of such a script is a term of its own."""
    lowered = text.lower()
    if not _ANY_DENSE.search(lowered):
        return _WORD.findall(lowered)
    found: list[str] = []
    for run in _RUN.findall(lowered):
        if _ANY_DENSE.match(run) and len(run) > 1:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found.append(run)
    return found


def content_terms(query: str) -> list[str]:
    """Distinct terms of a query that say what it is about, in order."""
    return [term for term in dict.fromkeys(terms(query)) if term not in STOP_WORDS]
