"""The addresses of links that a question asks for stay in a page, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import segment
from compression.source.units import SegmentationSettings

Compress = Callable[..., CompressionResult]

SAID = "The dredging of the harbour took four years and cost the town more than anybody had said it would. "
MENU = "".join(f'<li><a href="/section/{number}">Section {number}</a></li>' for number in range(40))
PAGE = f"""<html><body><ul>{MENU}<li><a class="x" href='/downloads/v2' target=_blank>Download</a></li></ul>
<div><p>{SAID}It is in <a href="https://example.org/tides">the tables</a> of the port.</p>
<a href=https://example.org/news><div><b>Release</b> notes</div></a><p>{SAID}</p>
<table><tr><th>File</th><th>Size</th></tr><tr><td><a href="/f/tides.zip">tides.zip</a></td><td>3 MB</td></tr></table>
<a href="#top">Download</a> <a href="javascript:void(0)">Download</a></div></body></html>"""


def view(question: str, page: str = PAGE) -> str:
    return segment(page, SegmentationSettings(question=question)).source


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("What is the link to the download page?", "<a href='/downloads/v2'>Download"),
        ("Where can I download it?", "<a href='/downloads/v2'>Download"),
        ("Quel est le lien des tables ?", 'in <a href="https://example.org/tides">the tables of the port.'),
        ("What are the release notes?", "<a href=https://example.org/news>Release notes"),
        ("What is https://example.org/tides about?", '<a href="https://example.org/tides">the tables'),
        ("How large is tides.zip?", '<td><a href="/f/tides.zip">tides.zip<td>3 MB'),
    ],
)
def test_a_link_that_is_asked_for_keeps_its_address(question: str, kept: str) -> None:
    assert kept in view(question)


@pytest.mark.parametrize("question", ["", "How long did the dredging take?", "Summarize this article."])
def test_a_question_for_no_link_keeps_no_address(question: str) -> None:
    assert "href" not in view(question)


def test_a_question_for_all_links_keeps_every_address_that_leads_somewhere() -> None:
    found = view("List all links.")
    assert found.count("href") == 44
    assert "#top" not in found
    assert "javascript" not in found


def test_of_links_that_a_question_names_by_the_way_a_few_keep_their_address() -> None:
    page = f"<html><body><p>{SAID}</p>{'<p><a href=/x>harbour</a> it is.</p>' * 40}</body></html>"
    assert view("How deep is the harbour?", page).count("href") == 8


def test_what_is_kept_is_slices_of_the_page_with_the_address(compress: Compress) -> None:
    result = compress(PAGE, 0.3, query="What is the link to the tables?", marked=["tables"])
    assert 'It is in <a href="https://example.org/tides">the tables of the port.' in result.output
    assert result.output == "".join(PAGE[start:end] for start, end in result.kept)


def test_an_address_stays_in_a_page_in_json_and_in_a_result_of_a_call(compress: Compress) -> None:
    asked = {"query": "What is the link to the tables?", "marked": ["tables"]}
    fetched = compress(json.dumps({"url": "x", "html": PAGE}), 0.4, **asked).output
    assert "https://example.org/tides" in json.loads(fetched)["html"]
    call = {"id": "c1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "What is the link to the tables?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": PAGE},
    ]
    kept = json.loads(compress(json.dumps(messages), 0.5, **asked).output)
    assert '<a href="https://example.org/tides">the tables' in kept[-1]["content"]


def linked(*texts: str) -> str:
    links = "".join(f'<li><a href="/{at}">{text}</a></li>' for at, text in enumerate(texts))
    return f"<html><body><p>{SAID}</p><ul>{links}</ul><p>{SAID}</p></body></html>"


@pytest.mark.parametrize(
    "question",
    [
        "List all links.",
        "Give me every link of this website, please.",
        "Find each URL on the page.",
        "Show the web addresses of the site.",
        "Liste alle Links der Seite.",
    ],
)
def test_the_words_of_a_question_for_all_links_name_none(question: str) -> None:
    page = linked(
        "List of all ships", "Harbour", "Find a website", "Every page", "Get it", "Tides", "Show more"
    )
    assert view(question, page).count("href") == 7


def test_short_words_of_a_question_are_no_beginnings_of_others() -> None:
    page = linked("Boats", "Berths", "Bridge", "Buoys", "Harbour", "Plan B")
    found = view("Is plan B better?", page)
    assert found.count("href") == 1
    assert '<a href="/5">Plan B' in found
    assert '<a href="/1">v2' in view("What is the link to v2?", linked("v20", "v2"))


def test_an_address_is_a_links_beside_a_word_of_the_web_alone() -> None:
    page = linked("Town hall and its tower", "Harbour office for all ships")
    assert "href" not in view("What is the address of the town hall?", page)
    assert view("What is the web address of the town hall?", page).count("href") == 1
    assert view("What is the address of the page of the town hall?", page).count("href") == 1


def test_so_many_terms_of_a_question_are_compared() -> None:
    words = " ".join(f"{number:03}word" for number in range(80))
    page = linked("063word", "064word")
    assert view(f"What is the link to {words}?", page).count("href") == 1


def test_a_page_that_a_question_names_by_its_link_is_told_from_others() -> None:
    page = linked("Download page", "Harbour page")
    assert view("Where is the download page?", page).count("href") == 1


def test_an_address_without_its_closing_mark_is_none() -> None:
    assert "href" not in view(
        "List all links.", linked().replace("<ul>", '<ul><li><a href="a b">it</a></li>')
    )


def test_a_link_without_text_hands_its_address_to_no_other() -> None:
    links = '<p><a href="/harbour"><img src=x> <a href="/tides">Tides</a> of the year</p>'
    page = f"<html><body><p>{SAID}</p>{links}<p>{SAID}</p></body></html>"
    assert "href" not in view("What is the link to the harbour?", page)
