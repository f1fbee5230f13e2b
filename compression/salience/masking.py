"""What is left of a line without its numbers, ids, paths, times and quoted names."""

import re
from collections.abc import Sequence

_PART = r"""[^\s=:,;()\[\]{}<>"'|]"""
_NOT_DIGIT = r"""[^\s=:,;()\[\]{}<>"'|\d]"""
# Tried where a part begins, and nowhere inside it: a long line costs its length.
# A status or a level that is a number says what happened, and stays; so does the letter before a klog date.
_MEANT = (
    r"""(?:(?:(?<=" )|(?<=tatus[=: ])|(?<=tatus(?:"|:)[: ])|(?<=code[=: ])|(?<=code: ))[1-5]\d\d(?![\w.])"""
    r"""|(?:(?<=evel":)|(?<=evel": )|(?<=xit code )|(?<=xit status ))\d++"""
    r"""|0 (?:failed|failures?|errors?)\b|[IWEF]\d{4} )"""
)
_VARIABLE = re.compile(
    rf"(?<!{_PART})(?!{_MEANT})(?:{_NOT_DIGIT}*+\d{_PART}*+|(?:[A-Za-z]\\|/){_PART}++|0x[0-9a-fA-F]++)"
    r"""|(?<=[\w)\]] )(?:"[^"\n]*+"|'[^'\n]*+'|`[^`\n]*+`)"""
)
_RUN = re.compile(r"\*(?:[\s:,./+|-]++\*)++")
LONGEST = 300


def masked(texts: Sequence[str]) -> list[str]:
    """Each text's first line with `*` for what changes from one line of its kind to the next."""
    heads = [_head(text) for text in texts]
    # One pass over all of them costs a third of a pass over each.
    return (
        _RUN.sub("*", _VARIABLE.sub("*", "\n".join(heads)).replace("\n", "\n\0"))
        .replace("\0", "")
        .split("\n")
    )


def _head(text: str) -> str:
    text = text.lstrip()
    end = text.find("\n")
    return text[: LONGEST if end < 0 else min(end, LONGEST)].replace("\r", " ")
