"""Queries that ask for what a page says as a whole: then its main text comes first, from its beginning."""

from compression.source.edits import is_within
from compression.source.text import content_terms
from compression.source.units import Segmentation

# Words that ask for the whole, or name it, in the most common languages. That no other word of the query is in the page
# is what tells; these only do not count.
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


def asks_for_gist(query: str, text: Segmentation) -> bool:
    """True where no word of the query that could tell one part of the page from another is in the page, in any form."""
    terms = [term for term in content_terms(query) if term not in _WHOLE]
    if not terms:
        return True
    page = text.source.lower()
    return not any(term[: max(_STEM, len(term) - _ENDING)] in page for term in terms)


# Scores of the main text fall from 1 to here, and those of the rest from half of it.
_LAST = 0.5


def by_place(text: Segmentation) -> list[float]:
    """Scores that put the main text before the rest, and of each what comes first before the rest of it."""
    count = max(1, len(text.units))
    return [
        (1.0 if is_within(text.main, unit.start) else _LAST) - (1 - _LAST) * _LAST * number / count
        for number, unit in enumerate(text.units)
    ]
