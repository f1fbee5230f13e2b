"""What a chat template's filters and methods do to the bytes of a text: a factor, and how many more."""

from collections.abc import Mapping

SAME = (1, 0)
# U+0390 is two bytes and three letters of two in capitals; no letter grows more.
OTHER_CASE = (3, 0)
# As JSON, a control character is six bytes; the quotes are two.
AS_JSON = (6, 2)

FILTERS: Mapping[str, tuple[int, int]] = {
    "trim": SAME,
    "string": SAME,
    "safe": SAME,
    "upper": OTHER_CASE,
    "lower": OTHER_CASE,
    "capitalize": OTHER_CASE,
    "title": OTHER_CASE,
    "tojson": AS_JSON,
}
METHODS: Mapping[str, tuple[int, int]] = {
    "strip": SAME,
    "lstrip": SAME,
    "rstrip": SAME,
    "removeprefix": SAME,
    "removesuffix": SAME,
    "upper": OTHER_CASE,
    "lower": OTHER_CASE,
    "capitalize": OTHER_CASE,
    "title": OTHER_CASE,
}
