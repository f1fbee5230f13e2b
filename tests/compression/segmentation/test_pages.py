"""Pages are read without their markup, cut at their blocks, and what is kept of them is a slice of the input."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.choosing.gist import asks_for_gist
from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import segment
from compression.segmentation.markup import tokens
from compression.segmentation.pages import find_pages, segment_page
from compression.source.edits import is_within, with_markup, without
from compression.source.units import Segmentation, SegmentationSettings
from tests.compression.segmentation import invariants

Compress = Callable[..., CompressionResult]

LONG = "The dredging of the harbour took four years and cost the town more than anybody had said it would. "
PAGE = f"""<!DOCTYPE html>
<html><head><title>Harbour &amp; town</title><style>p {{ color: red }}</style>
<script>googletag.cmd.push("<p>Not a paragraph</p>");</script></head>
<body><nav><ul><li><a href="/">Home</a></li><li><a href="/about">About</a></li></ul></nav>
<div class="x1"><h1 class="big">The <em>harbour</em></h1>
<p class="lead">{LONG * 2}See <a href="https://example.org/a/long/address?with=arguments">the report</a>&mdash;all  of
   it.</p><p>{LONG}</p>
<svg><title>An icon</title><path d="M0 0"/></svg>
<table><tr><th>Year</th><th>Cost</th></tr><tr><td>2019</td><td>4</td></tr><tr><td>2020</td><td></td></tr></table>
<ul><li>One item<li>Another item</ul>
<pre>def dig():
    <span>return</span> 1
</pre>
<div><a href="/1">Five bridges to watch</a> <a href="/2">A bakery and its oven</a></div></div>
<div class="x2"><p>We value your privacy and that of our partners.</p><button>Accept</button></div>
<footer><p>Responsible: Ines Calloway, Porto.</p></footer></body></html>"""


def main_of(text: Segmentation) -> list[str]:
    return [text.text(number) for number, unit in enumerate(text.units) if is_within(text.main, unit.start)]


def test_the_text_of_a_page_is_without_tags_scripts_styles_and_drawings() -> None:
    text = segment(PAGE)
    assert "Harbour & town" in text.texts()
    assert "See the report—all of\nit." in text.texts()
    assert not any(word in text.source for word in ("googletag", "color", "href", "icon", "class"))
    # A tag that parts two blocks lies between units.
    letters = set("abdefhilnoprtuv")
    invariants.check(text, lambda letter: letter.isalnum() and letter not in letters)


def test_units_have_the_kinds_of_the_blocks_that_they_are_cut_from() -> None:
    text = segment(PAGE)
    kinds = {text.text(number): unit.kind for number, unit in enumerate(text.units)}
    assert kinds["<h1>The harbour"] == "heading"
    assert kinds["One item"] == kinds["Another item"] == "list_item"
    assert kinds["def dig():\n    return 1"] == "code_block"
    assert kinds["<th>Year<th>Cost"] == "table_header"
    assert kinds["<td>2019<td>4"] == "table_row"


def test_a_row_brings_the_head_of_its_columns(compress: Compress) -> None:
    assert "<th>Year<th>Cost" in compress(PAGE, 0.2, query="2019", marked=["2019"]).output


def test_what_is_kept_is_slices_of_the_page(compress: Compress) -> None:
    result = compress(PAGE, 0.2, marked=["report"])
    assert result.output == "".join(PAGE[start:end] for start, end in result.kept)
    assert "&mdash;all of\nit." in result.output
    assert result.receipt.compression_ratio <= 0.2


def test_a_ratio_of_one_gives_the_page_back(compress: Compress) -> None:
    assert compress(PAGE, 1.0).output == PAGE


def test_blocks_without_space_between_them_are_parted_by_a_tag_without_attributes() -> None:
    source = '<div><p class="a">One word.</p><p class="b" id="c">Two words.</p></div>'
    text = segment(source)
    assert text.source == "One word.<p>Two words."
    assert text.raw([(0, len(text.source))]) == "One word.<p>Two words."


def test_words_that_only_a_phrase_element_parts_stay_one_word() -> None:
    assert "unbelievable" in segment("<div><p>un<b>believ</b>able</p><p>x</p></div>").source


def test_the_main_text_is_what_is_prose_and_not_around_it() -> None:
    main = main_of(segment(PAGE))
    assert "<h1>The harbour" in main
    assert LONG.strip() in main
    assert "One item" in main
    beside = ("Home", "About", "Five bridges to watch", "Responsible: Ines Calloway, Porto.", "Accept")
    assert not any(other in unit for unit in main for other in beside)
    assert not any("privacy" in unit for unit in main)


@pytest.mark.parametrize(
    "sentence",
    [
        "港の浚渫には四年かかり、町が思っていたよりも多くの費用がかかった。",
        "استغرق تعميق الميناء أربع سنوات وكلف المدينة أكثر مما كان متوقعا.",
    ],
)
def test_the_main_text_is_found_in_any_script(sentence: str) -> None:
    menu = f"<div><a href='/'>{sentence[:6]}</a></div>"
    page = f"<html><body>{menu}<div><p>{sentence * 3}</p><p>{sentence}</p></div></body></html>"
    main = main_of(segment(page))
    assert "".join(main).count(sentence[-8:-1]) == 4


def test_a_summary_of_a_page_is_its_main_text_and_a_fact_beside_it_is_found(compress: Compress) -> None:
    summary = compress(PAGE, 0.15, query="Summarize this article.").output
    assert LONG.strip() in summary
    assert "About" not in summary
    assert "privacy" not in summary
    fact = compress(PAGE, 0.1, query="Who is responsible?").output
    assert "Responsible: Ines Calloway, Porto." in fact


@pytest.mark.parametrize(
    "query",
    [
        "",
        "Summarize this article.",
        "tl;dr",
        "总结这篇文章",
        "Fasse den Artikel bitte kurz zusammen",
    ],
)
def test_a_query_of_words_that_ask_for_the_whole_asks_for_all_of_it(query: str) -> None:
    assert asks_for_gist(query, segment(PAGE))


@pytest.mark.parametrize(
    "query",
    ["Summarize what the article says about dredging", "Who is responsible?", "Wer trägt Verantwortung?"],
)
def test_a_query_with_a_word_of_the_page_does_not(query: str) -> None:
    assert not asks_for_gist(query, segment(PAGE))


def test_a_question_in_another_language_is_not_taken_for_a_summary(compress: Compress) -> None:
    said = "The hotel was built in 1932. It has a garden. A double room is 120 euros a night. Breakfast is served."
    page = f"<html><body><p>{said.replace('. ', '.</p><p>')}</p></body></html>"
    assert "120" in compress(page, 0.5, query="Wie viel kostet ein Doppelzimmer, 120?", marked=["120"]).output


README = """<p align="center"><a href="https://example.org"><img src="logo.png"></a></p>

# Pier

Pier moors boats.

```python
async def moor(boat):
    return {"boat": boat}
```

| berth | price |
|---|---|
| 1 | 20 |

<p>Thanks.</p><p>More.</p>
"""


@pytest.mark.parametrize(
    "source",
    [
        README,
        "<html><body><h1>Game</h1><p>Score</p><script>"
        + "function collide() { return 1 }\n" * 90
        + "</script></body></html>",
        "     1\t<!DOCTYPE html>\n     2\t<html><body><p>a</p><p>b</p></body></html>\n",
        "diff --git a/index.html b/index.html\n@@ -1,3 +1,3 @@\n <html>\n-<p>a</p>\n+<p>b</p>\n </html>\n",
        '<table name="orders">' + '<order id="7"><line sku="x">a</line><td>b</td></order>' * 9 + "</table>",
        "Put the snippet in the <head> of every page.\n\n```html\n<script src='a.js'></script>\n```\n"
        + README,
    ],
    ids=["Markdown", "a program in a page", "numbered lines", "a diff", "XML", "a tutorial"],
)
def test_what_only_has_tags_in_it_is_no_page(source: str) -> None:
    assert not find_pages(source)


def test_drawings_in_a_page_do_not_make_it_another_kind_of_document() -> None:
    icon = '<svg xmlns="http://www.w3.org/2000/svg">' + '<path d="M0 0"/><g><rect/></g>' * 9 + "</svg>"
    page = "<html><body>" + f"<p>{icon} {LONG}</p>" * 9 + "</body></html>"
    assert find_pages(page) == [(0, len(page))]


def test_a_page_without_an_end_does_not_swallow_what_is_before_it() -> None:
    assert not find_pages("Document 1: notes\n" + "<html><body><p>a</p><p>b</p>")


def test_what_follows_a_dropped_heading_does_not_run_into_what_is_before_it(compress: Compress) -> None:
    sections = "".join(f"<h2>Report {n} of the sales in town</h2><p>Bob sold {n}</p>" for n in range(8))
    output = compress(f"<html><body>{sections}</body></html>", 0.4, marked=["Bob"]).output
    assert "Bob sold 1" in output and "1Bob" not in output and "townBob" not in output


def test_a_page_in_a_member_of_json_leaves_json(compress: Compress) -> None:
    source = json.dumps({"url": "https://example.org", "html": PAGE, "status": 200})
    for ratio in (0.1, 0.3, 0.6):
        result = compress(source, ratio, marked=["report"])
        assert "googletag" not in result.output
        assert json.loads(result.output)
        assert result.output == "".join(source[start:end] for start, end in result.kept)


def test_a_page_that_a_tool_returned_is_read_in_its_conversation(compress: Compress) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Who is responsible?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": PAGE},
    ]
    source = json.dumps(messages)
    result = compress(source, 0.3, query="Who is responsible?", marked=["responsible", "Responsible"])
    kept = json.loads(result.output)
    assert [message["role"] for message in kept] == ["user", "assistant", "tool"]
    assert "Responsible: Ines Calloway, Porto." in kept[2]["content"]
    assert "googletag" not in result.output
    assert result.output == "".join(source[start:end] for start, end in result.kept)


def test_text_around_a_page_stays_text() -> None:
    text = segment(f"Fetched the page.\n\n{PAGE}\n\nThat was all.")
    assert text.texts()[0] == "Fetched the page."
    assert text.texts()[-1] == "That was all."
    assert "googletag" not in text.source


@pytest.mark.parametrize(
    "source",
    [
        "<ul>\n{% for each in all %}\n<li>{{ each.name }}</li>\n{% endfor %}\n{{ x }}</ul><p>a</p>",
        'import re\n\nPAGE = "<html><body><p>One.</p><p>Two.</p></body></html>"[:3]\n' * 3,
        "List<String> names = new ArrayList<>();\nif (a < b && c > d) { }",
        "<document>\nOne.\n</document>\n<document>\nTwo.\n</document>",
        "Use <b>bold</b> words, and <i>others</i>.",
        "<think>What is asked?</think>\nThe answer is four.",
    ],
)
def test_what_is_no_page_is_not_read_as_one(source: str) -> None:
    assert segment(source).origin is None


def test_a_part_of_a_page_is_one() -> None:
    assert find_pages("<div><p>One.</p><p>Two.</p></div>") == [(0, 33)]


_PIECES = """
<p>|</p>|<div a='b'>|</div>|<td>|<tr>|<table>|</table>|<a href=x>|</a>|&amp;|&nbsp;|<br>|<h2>|</h2>|<pre>|</pre>
|<!-- c -->|<!--|<script>x|</script>|<|>|<li>|</ul>|a b| |\n |x.|\\n|<svg>|é
"""
PIECES = st.sampled_from([*_PIECES.split("|")])


@given(st.lists(PIECES, max_size=40).map("".join), st.booleans())
def test_any_markup_is_slices_of_the_source_and_moves_there_and_back(source: str, is_escaped: bool) -> None:
    text = segment_page(source, SegmentationSettings(), is_escaped=is_escaped)
    assert text.origin is not None
    at = -1
    for start, end in text.raw_slices([(unit.start, unit.end) for unit in text.units]):
        assert at <= start < end
        at = end
    back = without(with_markup(text))
    assert (back.source, back.units, back.main) == (text.source, text.units, text.main)
    spans = [(token.start, token.end) for token in tokens(source)]
    assert spans == sorted(spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def _sentences(count: int, word: str) -> list[str]:
    return [
        f"The {word} number {number} is a sentence about {word}s that goes on for long enough."
        for number in range(count)
    ]


def test_a_list_of_comments_longer_than_the_article_leaves_the_article_the_main_text() -> None:
    article = "".join(f"<p>{sentence}</p>" for sentence in _sentences(15, "bridge"))
    comments = "".join(
        f"<li><div>user{number}</div><p>{text * 4}</p><a href='#'>Reply</a></li>"
        for number, text in enumerate(_sentences(40, "opinion"))
    )
    page = (
        f"<html><body><div><div>{article}</div><div><h3>40</h3><ol>{comments}</ol></div></div></body></html>"
    )
    main = main_of(segment(page))
    assert main[0].startswith("The bridge number 0")
    assert main[14].startswith("The bridge number 14") or "bridge number 14" in main[14]


def test_a_choice_of_consent_longer_than_the_article_is_not_the_main_text() -> None:
    article = "".join(f"<p>{sentence}</p>" for sentence in _sentences(4, "bridge"))
    consent = "".join(
        f"<div><p>{text * 4}</p><input type='checkbox'></div>" for text in _sentences(9, "purpose")
    )
    page = f"<html><body><div><h1>Bridges</h1>{article}</div><div>{consent}</div></body></html>"
    assert not any("purpose" in unit for unit in main_of(segment(page)))
    assert sum("bridge" in unit for unit in main_of(segment(page))) == 4


def test_a_page_that_is_a_form_as_a_whole_keeps_its_text() -> None:
    article = "".join(f"<p>{sentence}</p>" for sentence in _sentences(8, "bridge"))
    menu = "<ul><li><a href='/'>Home</a></li></ul>"
    page = f"<html><body><form><input type='hidden'>{menu}<div>{article}</div></form></body></html>"
    main = main_of(segment(page))
    assert len(main) == 8
    assert not any("Home" in unit for unit in main)


def test_sentences_that_are_mostly_links_are_text_and_a_menu_is_not() -> None:
    linked = " ".join(f"<a href='/{number}'>bridge</a> and harbour" for number in range(12))
    menu = "".join(f"<li><a href='/{number}'>Section {number}</a></li>" for number in range(20))
    page = f"<html><body><ul>{menu}</ul><div>{f'<p>The {linked} end here.</p>' * 4}</div></body></html>"
    main = main_of(segment(page))
    assert main
    assert not any("Section" in unit for unit in main)


def test_the_cells_of_a_table_that_lays_a_page_out_are_parted() -> None:
    links = "".join(f"<A href='/{number}'>Section {number}</A><BR>" for number in range(20))
    text = "<BR><BR>".join(_sentences(16, "bridge"))
    page = (
        f"<HTML><BODY><TABLE><TR><TD>{links}</TD><TD>{text}</TD><TD>{links}</TD></TR></TABLE></BODY></HTML>"
    )
    main = main_of(segment(page))
    assert len(main) == 16
    assert not any("Section" in unit for unit in main)


def test_a_cell_with_blocks_in_it_stays_in_its_row() -> None:
    cells = "<tr><td><div>2019</div></td><td><div><p>4</p><p>five</p></div></td></tr>"
    head = "<tr><th><div>Year</div></th><th>Cost</th></tr>"
    page = f"<html><body><div><table>{head}{cells * 2}</table><p>{LONG}</p></div></body></html>"
    text = segment(page)
    kinds = {text.text(number): unit.kind for number, unit in enumerate(text.units)}
    assert kinds["<th>Year<th>Cost"] == "table_header"
    assert kinds["<td>2019<td>4<p>five"] == "table_row"
    assert kinds[LONG.strip()] == "sentence"


@pytest.mark.parametrize(
    "template",
    [
        "<script>\n  export let name;\n</script>\n<main>\n  <h1>Hello {name}!</h1>\n  {#if name}\n  <p>You.</p>\n"
        "  {/if}\n  <p>And {name} again.</p>\n</main>\n<style>h1 { color: red }</style>\n",
        '<div class="a">\n  <li *ngFor="let i of items" [item]="i">x</li>\n  <p>There is nothing.</p>\n</div>',
        '<div className="app">\n  <ul>{items.map(i => <li key={i}>{i}</li>)}</ul>\n  <p>Text</p>\n</div>',
        '<div>\n  <p :class="c" @click="toggle">Hello</p>\n  <b>Hello</b>\n</div>',
        "<div>\n  @foreach ($users as $user)\n    <p>This is {{ $user->id }}</p>\n  @endforeach\n  <p>Bye</p>\n</div>",
    ],
)
def test_a_template_is_no_page(template: str) -> None:
    assert not find_pages(template)


def test_a_page_about_templates_and_one_with_a_framework_are_pages() -> None:
    example = "<pre>{% for p in pages %}{{ p.title }}{{ p.text }}{% endfor %}</pre>"
    assert find_pages(f"<html><body><h1>Templates</h1><p>{LONG}</p>{example * 3}</body></html>")
    assert find_pages(f'<html><body><div :class="c" @click="x" x-data="y"><p>{LONG}</p></div></body></html>')


def test_a_file_in_a_member_is_its_source_and_what_was_fetched_is_a_page() -> None:
    fetched = segment(json.dumps({"url": "https://example.org/a.html", "content": PAGE}))
    assert any("See the report" in unit for unit in fetched.texts())
    read = segment(json.dumps({"path": "site/a.html", "content": PAGE}))
    assert any('<h1 class=\\"big\\">' in unit for unit in read.texts())
