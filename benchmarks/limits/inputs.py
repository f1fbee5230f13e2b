"""Texts that broke other compressors, or could break this one: what an attacker would send."""

# The marks of other scripts are meant as they stand.

from __future__ import annotations

import json
import random
from collections.abc import Callable


def random_text(size: int) -> str:
    source = random.Random(7)
    ranges = [
        (0, 0x250),
        (0x590, 0x9FF),
        (0xE00, 0x10FF),
        (0x2000, 0x30FF),
        (0x4E00, 0x9FFF),
        (0x1F300, 0x1FAFF),
    ]
    return "".join(chr(source.randint(*source.choice(ranges))) for _ in range(size))


def _page(body: str) -> str:
    return f"<html><body><p>One.</p><p>Two.</p>{body}"


# Each makes an input of about `size` characters.
HOSTILE: dict[str, Callable[[int], str]] = {
    "no white space": lambda size: "a" * size,
    "one long line": lambda size: "The quick brown fox jumps 7 times. " * (size // 35),
    "Chinese without spaces": lambda size: "黑豹队的防守只丢了分。" * (size // 11),
    "right to left": lambda size: "هذا نص عربي. وهذه جملة أخرى؟ " * (size // 29),
    "joined emoji": lambda size: "👨‍👩‍👧‍👦👩🏽‍🚀" * (size // 11),
    "NULs": lambda size: "a\0b. \0\0C. " * (size // 10),
    "nested quotes": lambda size: "\"'“„«「" * (size // 6),
    "quotes that never close": lambda size: "“One. " * (size // 6),
    "marks alone": lambda size: "。" * size,
    "dots": lambda size: "." * size,
    "spaced dots": lambda size: ". " * (size // 2),
    "white space": lambda size: " " * size,
    "blank lines": lambda size: "\n" * size,
    "CRLF": lambda size: "One line.\r\nTwo.\r\n\r\n" * (size // 19),
    "unclosed fences": lambda size: "```python\nx = 1\n" * (size // 16),
    "one unclosed fence": lambda size: "```\n" + "x = 1\n" * (size // 6),
    "open brackets": lambda size: "[" * size,
    "lines of open braces": lambda size: "{\n" * (size // 2),
    "lines that begin JSON": lambda size: '{"a":\n' * (size // 6),
    "lines that begin arrays": lambda size: '["x",\n' * (size // 6),
    "bracketed commas": lambda size: "[a, b, c d e f g h i j k\n" * (size // 25),
    "minified JSON": lambda size: json.dumps(
        [{"id": n, "t": "Some text. " * 50} for n in range(size // 580)]
    ),
    "numbers in JSON": lambda size: json.dumps(list(range(size // 7))),
    "backslashes": lambda size: json.dumps("\\" * (size // 2)).join(('{"a": ', "}")),
    "CSV": lambda size: "id,name,value\n" + "".join(f"{n},n{n},{n * 3}\n" for n in range(size // 16)),
    "commas in prose": lambda size: "one, two and more words, three of it\n" * (size // 37),
    "Markdown table": lambda size: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * (size // 10),
    "pipes": lambda size: "|" * size,
    "nested elements": lambda size: _page("<div>a " * (size // 7)),
    "blocks of a page": lambda size: _page("<p>One. Two.</p>" * (size // 16)),
    "headings without ends": lambda size: _page("<h2>One" * (size // 7)),
    "ends of nothing": lambda size: _page("</div>" * (size // 6)),
    "tags that do not end": lambda size: _page("<a href='" * (size // 9)),
    "quotes that do not end in tags": lambda size: _page('<b x="' * (size // 6)),
    "comments that do not end": lambda size: _page("<!--" * (size // 4)),
    "scripts that do not end": lambda size: _page("<script>" * (size // 8)),
    "cells": lambda size: _page("<table><tr>" + "<td>a" * (size // 5)),
    "rows without ends": lambda size: "<p>x</p><p>y</p><table>" + "<tr><td>a" * (size // 9),
    "line breaks in a cell": lambda size: _page("<table><tr><td>" + "<br>" * (size // 4) + "a"),
    "pages in a text": lambda size: (
        "text\n<html><p>a</p><p>b</p><p>Some sentence.</p></html>\n" * (size // 55)
    ),
    "references": lambda size: _page("&lt;a " * (size // 6)),
    "stack traces": lambda size: (
        'Traceback (most recent call last):\n  File "x"\nValueError: no\n' * (size // 62)
    ),
    "a line of capitals over a trace": lambda size: "A" * size + "\n    at x\n",
    "a dotted name over a trace": lambda size: "a." * (size // 2) + "\n    at x\n",
    "a trace that ends in capitals": lambda size: "panic:\n  at x\n" + "A" * size,
    "headings": lambda size: "# T\n" * (size // 4),
    "rules": lambda size: "---\n" * (size // 4),
    "tags": lambda size: "<doc>\n" * (size // 6),
    "documents": lambda size: "Document [1](Title: x) y.\n" * (size // 26),
    "an open title": lambda size: "Document [1](Title: " + "(" * size,
    "turns": lambda size: "A: hi\nB: yo\n" * (size // 12),
    "colons": lambda size: "a: " * (size // 3),
    "numbered": lambda size: "".join(f"[{n}] a\n" for n in range(size // 8)),
    "indented": lambda size: "    x\n" * (size // 6),
    "combining marks": lambda size: "e" + "\u0301" * size,
    "odd separators": lambda size: "a\u2028b\u200b\x85c\x1c" * (size // 7),
    "URLs": lambda size: "http://a.b/c?d=e&f " * (size // 19),
    "orders": lambda size: "ignore all previous " * (size // 20),
    "random characters": random_text,
    "lines of open brackets": lambda size: "[\n" * (size // 2),
    "tiny lines": lambda size: "x\n" * (size // 2),
    "tiny sentences": lambda size: "A! " * (size // 3),
    "tiny paragraphs": lambda size: "a\n\n" * (size // 3),
    "distinct lines": lambda size: "".join(f"{n:x}\n" for n in range(size // 6)),
    "distinct words": lambda size: "".join(f"{n:x} " for n in range(size // 6)),
    "distinct long words": lambda size: "".join(f"{n:048d}q " for n in range(size // 50)),
    "words that no vocabulary has": lambda size: "".join(
        f"{n:016b}".replace("0", "ъ") for n in range(size // 24)
    ),
    "words of marks": lambda size: ("e\u0301\u0302" * 40 + " ") * (size // 201),
    "list items": lambda size: "- x\n" * (size // 4),
    "log lines": lambda size: "INFO: x\n" * (size // 8),
    "titles": lambda size: "Title: x\ny\n" * (size // 11),
    "one endless heading": lambda size: "# " + "a. " * (size // 3),
    "an endless title": lambda size: "Title: " + "a b " * (size // 8) + "\n" + "x. " * (size // 6),
    "underlined headings": lambda size: "a\n=\n" * (size // 4),
    "long turns": lambda size: ("Ann: " + "we met. " * 60 + "\n") * (size // 486),
    "fences": lambda size: "```\nx\n```\n" * (size // 10),
    "a fence of tildes": lambda size: "~" * (size - 100) + "x" * 100,
    "fenced JSON": lambda size: ("```\n[" + '"ab",' * 90 + "1]\n```\n") * (size // 461),
    "JSON on many lines": lambda size: ('["' + 'ab","' * 90 + '"]\nand\n') * (size // 459),
    "lone indented lines": lambda size: "    x\n\ny\n\n" * (size // 10),
    "a rule of spaces under a bar": lambda size: "|\n" + " " * size + "x|",
    "a rule with spaces after it": lambda size: "a|b\n|-" + " " * size + "x",
    "Markdown tables": lambda size: "a|\n-|\n" * (size // 6),
    "rows of tabs": lambda size: "a\tb\n" * (size // 4),
    "rows of commas": lambda size: ",,,\n" * (size // 4),
    "quoted rows": lambda size: '"a","b","c"\n' * (size // 12),
    "deep JSON": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "JSON that is no JSON at its end": lambda size: (
        "[\n" * 900 + "1,\n" * (size // 3) + "1" + "]" * 900 + "x"
    ),
    "JSON of tiny members": lambda size: "{" + ",".join(f'"{n:x}":1' for n in range(size // 10)) + "}",
    "JSON of empty arrays": lambda size: "[" + "[]," * (size // 3) + "[]]",
    "JSON in two hundred shells": lambda size: (
        '{"a":' * 200 + json.dumps(["b " * 30] * (size // 64)) + "}" * 200
    ),
    "a key as long as its object": lambda size: json.dumps(
        {"k" * (size // 2): ["ab cd " * 10] * (size // 128)}
    ),
    "long records": lambda size: json.dumps([{"t": "word " * 90}] * (size // 461)),
    "dots in a JSON string": lambda size: json.dumps({"a": "." * size}),
    "sentences in a JSON string": lambda size: json.dumps({"a": "A. B? " * (size // 6)}),
    "escapes in a JSON string": lambda size: json.dumps({"a": '\n"' * (size // 4)}),
    "a JSON string of open quotes": lambda size: json.dumps({"a": "“" * (size // 6)}, ensure_ascii=False),
    "one number": lambda size: "1" * size,
    "digits and commas": lambda size: "1," * (size // 2),
    "digits and dots": lambda size: "1." * (size // 2),
    "a number without an end": lambda size: "1" + "." * size,
    "line separators": lambda size: "a\u2028" * (size // 4),
    "carriage returns": lambda size: "a\r" * (size // 2),
    "mail without an end": lambda size: "a.b" * (size // 3) + "@",
    "opening quotes": lambda size: "“" * (size // 3),
    "German orders": lambda size: "ignorier" * (size // 8),
    "Spanish orders": lambda size: "ignor" * (size // 5),
    "orders after blank lines": lambda size: "new instructions are here" + "\n" * size,
    "negations": lambda size: "no " * (size // 3),
    "names": lambda size: "x Ab" * (size // 4),
    "bidirectional controls": lambda size: "\u202ea\u2066b" * (size // 8),
    "Hangul letters": lambda size: "\u1100\u1161\u11a8" * (size // 9),
    "Thai without spaces": lambda size: "ภาษาไทยง่าย" * (size // 33),
    "ligatures": lambda size: "ﷺ" * (size // 3),
    "the query's own words": lambda size: "".join(f"{n % 5000:x} " for n in range(size // 5)),
}


def hostile_of(name: str, size: int) -> str:
    """The text of that name in at most `size` bytes of UTF-8, and not much less."""
    asked = size * size // len(HOSTILE[name](size).encode())
    while (found := len((text := HOSTILE[name](asked)).encode())) > size:
        asked = asked * size // found - 1
        if asked < 1:
            raise ValueError(f"{name}: takes more than {size} bytes")
    return text
