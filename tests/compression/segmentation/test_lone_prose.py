"""A paragraph of one line that begins as sentences do is asked for nothing else, and comes out the same."""

from __future__ import annotations

import re
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from compression.segmentation import blocks, segment

# What lines of every kind begin with or hold, and words of prose around it.
BEGINNINGS = [
    *[
        "The committee met",
        "In Oslo the",
        "Reading package lists...",
        "Setting up curl",
        "Exception in thread",
    ],
    *[
        "Caused by",
        "Error Sun Dec",
        "Info Jun Dec",
        "Jun",
        "Sun Dec",
        "Error",
        "Test Suites",
        "Tests",
        "Index",
    ],
    *[
        "Unpacking libc",
        "Processing triggers for",
        "Receiving objects",
        "Traceback (most recent call last)",
        "A b c",
    ],
    *["The man said", "Noor Haddad wrote", "I am", "E", "Monday", "Step", "Get", "Ada"],
]
MIDDLES = [
    "",
    " ",
    ": ",
    " 04 04:47:44 2005 ",
    " 14 15:16:01 ",
    " | ",
    " 45% |███",
    " 3 ",
    ", ",
    "  ",
    "\t",
    "=",
    "@",
    " {",
]
ENDS = [
    ".",
    ":",
    "",
    "\n",
    "\n\n",
    "\n    at a.b(c)\n",
    "\n| --- | --- |\n",
    "\n---\n",
    "\n\n@@ -1 +1 @@\n+x\n",
]
LINES = st.lists(
    st.tuples(
        st.sampled_from(BEGINNINGS),
        st.sampled_from(MIDDLES),
        st.sampled_from(BEGINNINGS),
        st.sampled_from(ENDS),
    ).map("".join),
    max_size=6,
)


@given(LINES, st.sampled_from(["\n", "\n\n"]))
@example(["Error Sun Dec 04 04:47:44 2005 it broke"], "\n")
@example(["Setting up curl (7.88.1) ..."], "\n")
@example(["The download runs 45% |███   |"], "\n")
@settings(max_examples=100)
def test_lone_lines_of_prose_are_cut_as_if_every_rule_had_been_asked(lines: list[str], between: str) -> None:
    source = between.join(lines)
    found = segment(source)
    with patch.object(blocks, "PROSE", re.compile(r"(?!)")):
        assert segment(source) == found
