"""XML is data: an element's tags stay around what is kept of it, and what is left is well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from xml.parsers.expat import ParserCreate

import pytest

from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import segment
from compression.segmentation.xml_units import read_xml
from tests.compression.segmentation import invariants

Compress = Callable[..., CompressionResult]

NOTE = ", as was asked" * 18
ORDERS = "".join(
    f"  <order>\n    <id>SO-{number}</id>\n    <item>lamp of the {number} kind, with a shade of glass</item>\n"
    f'    <shipment by="post">\n      <code>TR{number}</code>\n      <note>left at the door{NOTE}</note>\n'
    f"    </shipment>\n    <paid>yes</paid>\n  </order>\n"
    for number in range(4100, 4130)
)
PROLOG = '<?xml version="1.0"?>\n<!DOCTYPE orders [\n<!ELEMENT orders (order*)>\n]>\n<!-- exported -->\n'
ROOT = '<orders xmlns="urn:x" count="30">'
DOCUMENT = f"{PROLOG}{ROOT}\n{ORDERS}</orders>\n"


def test_elements_are_units_within_the_tags_around_them() -> None:
    text = segment(DOCUMENT)
    kinds = {text.text(number): unit.kind for number, unit in enumerate(text.units)}
    assert kinds[PROLOG + ROOT] == "bracket"
    assert kinds["</orders>"] == "bracket"
    assert kinds["<id>SO-4103</id>"] == "json_member"
    assert {frame.kind for frame in text.frames} == {"xml"}
    assert len(text.documents) == 31
    invariants.check(text, str.isalnum)


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.6])
def test_what_is_left_is_well_formed_and_has_the_record_that_was_asked_for(
    compress: Compress, ratio: float
) -> None:
    result = compress(DOCUMENT, ratio, query="What is the code of SO-4117?", marked=["TR4117"])
    root = ElementTree.fromstring(result.output)
    found = {order.findtext("{urn:x}id"): order for order in root}
    assert found["SO-4117"].findtext("{urn:x}shipment/{urn:x}code") == "TR4117"
    assert result.receipt.compression_ratio <= ratio
    assert not result.receipt.risk_flags or all(
        flag.code != "json_invalid" for flag in result.receipt.risk_flags
    )


def test_a_long_text_goes_by_its_sentences_and_keeps_its_tags(compress: Compress) -> None:
    said = "".join(
        f"Sentence {number} of the post says what it says at some length. " for number in range(20)
    )
    items = "".join(f"<item><guid>g{n}</guid><text><![CDATA[{said}]]></text></item>" for n in range(3))
    result = compress(
        f'<?xml version="1.0"?><rss><channel>{items}</channel></rss>', 0.2, marked=["Sentence 7"]
    )
    texts = [text.text for text in ElementTree.fromstring(result.output).iter("text")]
    assert all("Sentence 7" in (text or "") for text in texts)
    assert texts


@pytest.mark.parametrize(
    "source",
    [
        "<a><b>1</b></a><c/>",
        "<a><b>1</a></b>",
        "text <a><b>1</b></a>",
        "<a><b>1</b></a> and more >",
        "<a>1</a>",
        "<a><b x='<'>1</b></a>",
        "<a><!-- <b>1</b></a>",
        "<a>" * 2000,
        "",
    ],
)
def test_what_is_not_one_well_formed_element_with_others_in_it_is_none(source: str) -> None:
    assert read_xml(source) is None


def test_passages_in_tags_of_a_prompt_are_documents_and_no_data() -> None:
    passage = "The harbour was dredged in four years, which cost the town more than it had. " * 8
    source = (
        "<documents>" + "".join(f"<document>\n{passage}\n</document>\n" for _ in range(3)) + "</documents>"
    )
    assert not any(frame.kind == "xml" for frame in segment(source).frames)


def test_elements_nested_deeper_than_any_data_stay_one_unit() -> None:
    deep = "<a>" * 5_000 + "x" + "</a>" * 5_000
    text = segment(f"<r><b>1</b><b>2</b><b>3</b><b>4</b>{deep}</r>")
    assert len(text.units) < 200
    invariants.check(text, str.isalnum)


ARTICLE = (
    "We saw <italic>E. coli. It was</italic> here for the whole of the spring that year. "
    "Nobody had said so before, and <!-- a remark. Another one. --> it was written down. "
    "And <bold>so. It is</bold> said that the harbour was dredged at a great cost to the town. "
) * 3
PARAGRAPH = "<p>The harbour was dredged in four years. It cost the town more than it had.</p>"
HREF = "<a href='x y z w'>it</a> "
MIXED = [
    f"<p>{ARTICLE}</p>",
    f"<section>Intro of it. {PARAGRAPH * 6}</section>",
    f"<section>Intro of it. <div>{PARAGRAPH * 6}</div> <div>{ARTICLE}</div></section>",
    f"<description>text of it <b>Bold starts. Goes on</b>. text{' that goes on. And on it goes' * 20}</description>",
    f"<description>\n  <![CDATA[ {PARAGRAPH * 6} & more <br> of it. ]]>\n</description>",
    f"<s>Intro of it. <![CDATA[Less < more. A <b> is open. {PARAGRAPH}]]> tail of it. {'It goes on. ' * 30}</s>",
    f"<s>Intro. <![CDATA[Less < more. {PARAGRAPH * 6}]]> and <![CDATA[Less < more. It is.]]> tail of it.</s>",
    f"<s>A <!-- long. Comment of it. It goes on. --> tail of it. {'It goes on. ' * 30}</s>",
    f"<s>A <?do this. And That. ?> tail of it. {'It goes on. ' * 30}</s>",
    f"<s>{'many words without an end ' * 30}{HREF * 40}</s>",
    f"<s>{'x' * 597}&amp;{'x' * 597}&#38;{'x' * 300}</s>",
]


@pytest.mark.parametrize("mixed", MIXED, ids=range(len(MIXED)))
def test_a_text_with_elements_in_it_is_cut_around_them(compress: Compress, mixed: str) -> None:
    source = f'<?xml version="1.0"?>\n<root>{mixed * 8}</root>'
    ElementTree.fromstring(source)
    text = segment(source)
    invariants.check(text, str.isalnum)
    assert len(text.units) > 24
    for ratio in (0.1, 0.2, 0.3, 0.6):
        ElementTree.fromstring(compress(source, ratio, query="Was the harbour dredged?").output)
    for unit in text.units:
        if unit.kind == "sentence" and "<![CDATA[ " not in mixed and "Less" not in mixed:
            ElementTree.fromstring(f"<s>{source[unit.start : unit.end]}</s>")


def test_a_sentence_stays_whole_around_the_elements_in_it() -> None:
    said = segment(f'<?xml version="1.0"?>\n<root><p>{ARTICLE}</p><p>{ARTICLE}</p></root>').texts()
    assert "We saw <italic>E. coli. It was</italic> here for the whole of the spring that year." in said


def test_an_instruction_is_a_unit_and_a_key_in_cdata_is_a_key() -> None:
    key = f"<order><id><![CDATA[SO-9]]></id>{'<a>1</a>' * 12}</order>"
    text = segment(f"<orders><?sort by name?>{key}{key}</orders>")
    assert "<?sort by name?>" in text.texts()
    assert [len(frame.also) for frame in text.frames] == [0, 1, 1]


LONG_REMARK = f"<!-- {'exported by the port of the town, ' * 8} -->\n"


@pytest.mark.parametrize(
    "prolog",
    [
        f'<?xml version="1.0"?>\n{LONG_REMARK}<!DOCTYPE orders [\n<!ENTITY port "Harbour">\n]>\n',
        f'<?xml version="1.0"?>\n{LONG_REMARK}<!DOCTYPE orders SYSTEM "orders.dtd">\n',
        f"<?xml version='1.0' encoding='iso-8859-1'?>\n{LONG_REMARK}",
    ],
)
def test_a_long_prolog_without_which_the_rest_is_not_well_formed_stays(
    compress: Compress, prolog: str
) -> None:
    orders = ORDERS.replace("<item>", "<item>&port; ") if "DOCTYPE" in prolog else ORDERS
    source = f"{prolog}{ROOT}\n{orders}</orders>\n"
    output = compress(source, 0.1, marked=["TR4117"]).output
    assert "TR4117" in output
    assert segment(source).texts()[0] == prolog + ROOT
    ParserCreate().Parse(output, True)


@pytest.mark.parametrize("encoding", ["", ' encoding="UTF-8"', " encoding='utf8'"])
def test_a_long_prolog_that_nothing_needs_may_go(encoding: str) -> None:
    prolog = f'<?xml version="1.0"{encoding}?>\n{LONG_REMARK}<!DOCTYPE orders>\n'
    text = segment(f"{prolog}{ROOT}\n{ORDERS}</orders>\n")
    assert text.texts()[:2] == [prolog.strip(), ROOT]


@pytest.mark.parametrize("source", [DOCUMENT, DOCUMENT[len(PROLOG) :], f"\n{DOCUMENT[len(PROLOG) :]}"])
def test_a_mark_of_the_byte_order_before_it_changes_nothing(compress: Compress, source: str) -> None:
    output = compress(f"\ufeff{source}", 0.2, query="SO-4117?", marked=["TR4117"]).output
    assert "TR4117" in output
    ElementTree.fromstring(output)
    assert segment(f"\ufeff{source}").texts()[1:] == segment(source).texts()[1:]


SHORT = (
    "The harbour was dredged in four years. It cost the town more than {} ships had. "
    "Boats came in again in the spring. The mayor was glad of it at last."
)


@pytest.mark.parametrize(
    "said", [SHORT, "港口在四年内疏浚完毕。花费超过{}艘船的收入。春天船只又来了。市长终于高兴了。" * 4]
)
def test_short_passages_in_one_element_are_no_records(said: str) -> None:
    passages = "".join(f"<passage>{said.replace('{}', str(number))}</passage>\n" for number in range(30))
    text = segment(f"<context>\n{passages}</context>")
    assert not any(frame.kind == "xml" for frame in text.frames)
    assert len(text.units) > 30 * 4
    assert len(text.documents) >= 30


def test_short_passages_at_a_tight_ratio_keep_the_sentence_that_was_asked_for(compress: Compress) -> None:
    passages = "".join(f"<passage>{SHORT.format(number)}</passage>\n" for number in range(30))
    result = compress(f"<context>\n{passages}</context>", 0.03, marked=["than 17 ships"])
    assert "than 17 ships" in result.output
    assert result.receipt.compression_ratio <= 0.03


def test_values_without_a_sentence_are_records_whatever_their_length() -> None:
    found = "".join(
        f"<row><path>/srv/port/{'deep/' * 30}{number}.txt</path><kind>file</kind></row>"
        for number in range(9)
    )
    assert segment(f"<rows>{found}</rows>").frames[0].kind == "xml"
