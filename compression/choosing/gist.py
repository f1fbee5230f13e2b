"""Queries that ask for what a page says as a whole: then its main text comes first, from its beginning."""

from collections.abc import Sequence

from compression.source.edits import is_within
from compression.source.text import content_terms
from compression.source.units import Segmentation

# Words that ask for the whole, or name it, in the most common languages.
_WHOLE_WORDS = """
summarize summarise summary summarization tl dr tldr gist overview outline recap brief briefly short shorten
main key points point takeaways content contents contain contains article page webpage website site web html
text document post story blog read reading give please tell describe explain says say about extract bullet
bullets sentences words paragraph language english following above below here zusammenfassung zusammenfassen
zusammen fasse fass artikel seite text inhalt dokument kurz bitte gib résume résumer résumé article page texte
contenu document donne resume resumen resumir artículo página texto contenido resumo resuma artigo riassumi
riassunto articolo pagina testo резюмируй кратко изложи перескажи содержание статья статьи статью страница
страницы текст краткое 总结 概括 摘要 文章 网页 要約 記事 ページ لخص المقال
"""
# Letters that are left of a word without its ending, and how many an ending has.
_STEM, _ENDING = 4, 3
_WHOLE = frozenset(_WHOLE_WORDS.split())
# Of scripts without spaces, where a query's terms are not its words.
_UNSPACED = ("总结", "總結", "概括", "摘要", "要約")


def asks_for_gist(query: str, text: Segmentation) -> bool:
    """True where the text is a page, and the query has no word but such as ask for the whole."""
    if not text.main or text.is_conversation:
        return False
    terms = _telling(query)
    asks = not terms or any(word in query for word in _UNSPACED)
    return asks and not _is_in(text, terms)


def _telling(query: str) -> list[str]:
    return [term for term in content_terms(query) if term not in _WHOLE]


def with_place(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """The scores as they are where a word of the query is in the page, in any form. Where none is, as in a question in
    another language, the main text and what comes first of it weigh more; where the whole is asked for, that alone
    counts."""
    if not text.main or text.is_conversation or _is_in(text, _telling(query)):
        return list(scores)
    places = by_place(text)
    if asks_for_gist(query, text):
        return places
    return [score * place for score, place in zip(scores, places, strict=True)]


def _is_in(text: Segmentation, terms: Sequence[str]) -> bool:
    page = text.source.lower() if terms else ""
    return any(term[: max(_STEM, len(term) - _ENDING)] in page for term in terms)


# Scores of the main text fall from 1 to here, and those of the rest from half of it.
_LAST = 0.5


def by_place(text: Segmentation) -> list[float]:
    """Scores that put the main text before the rest, and of each what comes first before the rest of it."""
    count = max(1, len(text.units))
    return [
        (1.0 if is_within(text.main, unit.start) else _LAST) - (1 - _LAST) * _LAST * number / count
        for number, unit in enumerate(text.units)
    ]
