"""What is fuzzed, by name, and the corpora: inputs that each reached something which none before did."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

Judge = Callable[[bytes], None]
CORPUS = Path(__file__).parent / "corpus"
# Bytes of an input: none of the targets needs more to show what it does.
LONGEST = 2048


@dataclass(frozen=True)
class Target:
    """What judges one input after another: it raises `AssertionError`, or whatever escapes from what it tries."""

    module: str
    judge: str
    # Pieces that the fuzzer puts in, where inputs are text.
    words: tuple[str, ...] = ()
    # Whether it is opened first, and closed.
    is_opened: bool = False

    def opened(self) -> AbstractContextManager[Judge]:
        """Imports no more than what is judged."""
        judge = getattr(import_module(f"tests.fuzzing.{self.module}"), self.judge)
        found: AbstractContextManager[Judge] = judge() if self.is_opened else nullcontext(judge)
        return found


HTML = (
    *(
        "<html>",
        "<body>",
        "<p>",
        "</p>",
        "<div>",
        "</div>",
        "<table>",
        "<tr>",
        "<td>",
        "<th>",
        "<h1>",
        "<li>",
        "<ul>",
    ),
    *(
        "<pre>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<br/>",
        "&amp;",
        "&#x1f600;",
        "<a href='",
        "<svg>",
        "<style>",
    ),
    *("<![CDATA[", "<!doctype html>"),
)
MARKS = (
    *(
        "```\n",
        "|---|",
        "|\n",
        "# ",
        "\nA: ",
        "Document [1](Title: ",
        '{"a": [{',
        "}]",
        "\\n",
        "\\u00e9",
        '"role": ',
    ),
    *(
        '"content": ',
        "<doc>",
        "</doc>",
        "Traceback ",
        '  File "x"',
        "\nINFO ",
        "@@ -1",
        "http://",
        "not ",
        "1,234.5",
    ),
    *("\ufe71", "\u0640", "\u3002", "\r\n", "\n\n", "def f(): ", "diff --git "),
)
JSON = (
    '{"a":',
    "[[",
    "]]",
    "}",
    "\\ud800",
    "\\udc00",
    "\\u0000",
    "1e400",
    "-0",
    "1E5",
    "NaN",
    '"\\\\"',
    "\ufeff",
)
FORM = ("--b0undary", "\r\n", "\r\n\r\n", 'Content-Disposition: form-data; name="file"', '; filename="', "--")

TARGETS: dict[str, Target] = {
    "segmentation": Target("texts", "segmentation", HTML + MARKS),
    "page": Target("texts", "page", HTML),
    "compression": Target("texts", "compression", HTML + MARKS),
    "conversation": Target("texts", "conversation"),
    "json": Target("bodies", "json_body", JSON),
    "form": Target("bodies", "form", FORM),
    "dialects": Target("requests", "dialects", is_opened=True),
    "proof": Target("proofs", "proof", is_opened=True),
    "note": Target("proofs", "note"),
}


def read_corpus(name: str) -> list[bytes]:
    """One input a line, as Python writes bytes."""
    path = CORPUS / f"{name}.txt"
    return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_corpus(name: str, inputs: Iterable[bytes]) -> None:
    CORPUS.mkdir(exist_ok=True)
    lines = sorted(map(repr, set(inputs)), key=lambda line: (len(line), line))
    (CORPUS / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
