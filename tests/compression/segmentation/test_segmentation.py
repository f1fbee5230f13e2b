# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.segmentation import SegmentationSettings, segment
from tests.compression.segmentation.invariants import check


def texts(source: str, kind: str | None = None) -> list[str]:
    found = segment(source)
    return [found.text(index) for index, unit in enumerate(found.units) if kind in (None, unit.kind)]


def titles(source: str) -> list[str | None]:
    found = segment(source)
    return [None if document.title is None else found.text(document.title) for document in found.documents]


@given(st.text(max_size=400))
def test_any_text_is_cut_into_units_in_order(source: str) -> None:
    check(segment(source), str.isalpha)


PIECES = st.sampled_from(
    [
        "Document [1](Title: A (b)) text. ",
        "# Title\n",
        "Title: X\n",
        "[1] ",
        "[2] ",
        "---\n",
        "\n\n",
        "\r\n",
        "```\n",
        "```py\n",
        "| a | b |\n|---|---|\n",
        "| 1 | 2 |\n",
        "a,b,c\n",
        "- item\n",
        "1. item\n",
        "Ann: hello.\n",
        "Bob: no!\n",
        "<doc id=1>\n",
        "</doc>\n",
        '{"a": 1, "b": [1, 2, {"c": "d"}]}',
        '{"a":',
        "    code()\n",
        "2026-01-02 10:00:00 INFO up\n",
        "A sentence. ",
        "Traceback (most recent call last):\n",
        '  File "x", line 1\n',
        "ValueError: no\n",
        "他说。",
        "“quoted. ",
        "here” ",
        "\\n",
        '"',
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_mixture_of_formats_is_cut_into_units_in_order(source: str) -> None:
    narrow = SegmentationSettings(longest_unit=40, longest_dense=40, longest_block=40)
    check(segment(source, narrow), str.isalpha)


def test_retrieved_documents_are_told_apart_and_titled() -> None:
    source = (
        "Document [1](Title: Rachel (actress)) She sings. She acts.\nDocument [2](Title: Wicked) A musical."
    )
    assert titles(source) == ["Document [1](Title: Rachel (actress))", "Document [2](Title: Wicked)"]
    assert texts(source, "sentence") == ["She sings.", "She acts.", "A musical."]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Passage 1: One here.\n\nPassage 2: Two here.", ["Passage 1:", "Passage 2:"]),
        ("Title: One\nText one.\n\nTitle: Two\nText two.", ["Title: One", "Title: Two"]),
        ("# One\n\nText one.\n\n# Two\n\nText two.", ["# One", "# Two"]),
        ("[1] Text one goes.\n[2] Text two goes.", ["[1]", "[2]"]),
        ("[1] One\nText one goes.\n[2] Two\nText two goes.", ["[1] One", "[2] Two"]),
        ("Text one.\n\n---\n\nText two.", [None, None]),
        (
            "<document id='1'>\n<title>One</title>\nText.\n</document>\n<document>\nText.\n</document>",
            ["<title>One</title>", None],
        ),
        (
            f"Nile\n{'A long river in Africa it is. ' * 5}\n\nRhine\n{'A river in Europe it is, long. ' * 5}",
            ["Nile", "Rhine"],
        ),
        (
            "Intro text.\nDocument [1] One text.\nDocument [2] Two text.",
            [None, "Document [1]", "Document [2]"],
        ),
        (
            "文档[1](Title: 一) 你好。\n文档[2](Title: 二) 再见。",
            ["文档[1](Title: 一)", "文档[2](Title: 二)"],
        ),
    ],
)
def test_the_usual_ways_to_part_documents_are_known(source: str, expected: list[str | None]) -> None:
    assert titles(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Dr. Smith paid 3.5 m. He left.", ["Dr. Smith paid 3.5 m.", "He left."]),
        (
            "It fell by 2 p.m. on Monday. Why? Nobody knew!",
            ["It fell by 2 p.m. on Monday.", "Why?", "Nobody knew!"],
        ),
        ("Am 3. Oktober kam er z.B. mit. Dann ging er.", ["Am 3. Oktober kam er z.B. mit.", "Dann ging er."]),
        ("他来了。她走了！为什么？", ["他来了。", "她走了！", "为什么？"]),
        ("これはペンです。本です。", ["これはペンです。", "本です。"]),
        ("هذا نص. هل هذا سؤال؟ نعم.", ["هذا نص.", "هل هذا سؤال؟", "نعم."]),
        ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        (
            "He said “I came. I saw. I won.” Then he left.",
            ["He said “I came. I saw. I won.”", "Then he left."],
        ),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
    ],
)
def test_sentences_end_where_a_reader_says(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_wrapped_lines_are_one_sentence_and_full_lines_are_not() -> None:
    wrapped = "The quick brown fox jumps over the lazy dog and\nsleeps for the rest of the day, as foxes do. It\nate."
    assert len(texts(wrapped)) == 2
    assert texts("First point\nSecond point\nThird point") == ["First point", "Second point", "Third point"]


def test_thai_is_cut_at_spaces() -> None:
    source = "ภาษาไทยไม่มีช่องว่างระหว่างคำ " * 40
    units = segment(source).units
    assert len(units) > 4
    assert max(unit.end - unit.start for unit in units) <= 232


def test_short_turns_are_units_and_long_ones_name_their_speaker() -> None:
    long = "Bob: " + "I disagree with that plan entirely. " * 20
    found = segment(f"Ann: Hello there.\n{long}\nAnn: Fine.")
    assert [unit.kind for unit in found.units[:3]] == ["turn", "speaker", "turn"]
    assert found.text(1) == "Bob:"
    assert found.frames[0].kind == "turn" and found.units[2].frame == 0


def test_lists_logs_and_headings_have_their_kinds() -> None:
    log = "2026-01-01 10:00:00 INFO up\n2026-01-01 10:00:01 WARN down\n"
    source = f"# Head\n\n- one item\n- two items\n  and more\n\n{log}"
    assert [unit.kind for unit in segment(source).units] == [
        "heading",
        "list_item",
        "list_item",
        "line",
        "line",
    ]


def test_table_rows_stand_in_the_frame_of_their_header() -> None:
    for source in (
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "a,b,c\n1,2,3\n4,5,6\n",
        "a\tb\n1\t2\n3\t4\n",
    ):
        found = segment(source)
        assert [unit.kind for unit in found.units] == ["table_header", "table_row", "table_row"]
        assert found.frames[0].open == 0 and found.units[1].frame == 0


def test_a_long_code_block_keeps_its_fences_around_what_stays() -> None:
    code = "".join(f"def function_{number}():\n    return {number}\n\n" for number in range(40))
    found = segment(f"Text before.\n\n```python\n{code}```\nText after.")
    frame = found.frames[0]
    assert (
        found.text(frame.open) == "```python" and frame.close is not None and found.text(frame.close) == "```"
    )
    inside = [index for index, unit in enumerate(found.units) if unit.frame == 0]
    assert len(inside) > 3 and all(found.text(index).startswith("def") for index in inside)


def test_an_unclosed_fence_is_a_line_and_swallows_nothing() -> None:
    assert texts("```python\nHere is prose.\n\nAnd more of it.")[-1] == "And more of it."


def test_a_stack_trace_is_one_unit() -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nValueError: bad'
    assert texts(f"It failed.\n\n{trace}\n\nWe fixed it.") == ["It failed.", trace, "We fixed it."]


@pytest.mark.parametrize(
    ("line", "names_an_error"),
    [
        ("java.lang.IllegalStateException: closed", True),
        ("fooBarError", True),
        ("IOError$Inner", True),
        ("x Outer$InnerFault!", True),
        ("KeyboardInterrupt", True),
        ("Error: it failed", False),
        ("no error in sight", False),
        ("AnErrorCode", False),
        ("TimeoutErrors", False),
    ],
)
def test_frames_under_a_line_that_names_an_error_are_one_unit_with_it(
    line: str, names_an_error: bool
) -> None:
    trace = f"{line}\n    at Main.run(Main.java:3)\n    at Main.main(Main.java:9)"
    assert (texts(f"{trace}\nAll is well.")[0] == trace) is names_an_error


@pytest.mark.parametrize(
    ("line", "ends_the_trace"),
    [
        ("ValueError: bad", True),
        ("requests.exceptions.ConnectionError: refused", True),
        ("a.B$CException", True),
        ("TimeoutError.from_x", True),
        ("fooBarError", False),
        (".KeyError", False),
        ("All is well.", False),
    ],
)
def test_the_error_that_a_trace_ends_in_belongs_to_it(line: str, ends_the_trace: bool) -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f'
    assert (texts(f"{trace}\n{line}")[0] == f"{trace}\n{line}") is ends_the_trace
    java = "java.lang.IllegalStateException: no\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)"
    assert texts(f"It failed.\n\n{java}") == ["It failed.", java]


def test_joined_emoji_are_not_torn_apart() -> None:
    family = "👨‍👩‍👧‍👦"
    found = segment(family * 200)
    for unit in found.units[1:]:
        assert found.source[unit.start] != "\u200d" and found.source[unit.start - 1] != "\u200d"
