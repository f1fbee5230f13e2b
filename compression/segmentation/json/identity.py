"""Which members of a JSON record say what the record is: told from their values beside those of its siblings.

A member identifies where its value is short and (nearly) no sibling has it too. Of those one that reads as a key, one
that reads as a name, and one that reads as a date are taken, what their own names say coming first.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from compression.text.json_tree import Node

_CALLED_KEYS = frozenset(
    {
        "id", "uid", "uuid", "guid", "key", "code", "number", "num", "no", "nr", "name", "title", "path", "file",
        "filename", "email", "sku", "slug", "ref", "sha", "hash", "handle", "subject",
    }
)  # fmt: skip
_PART_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_KEY = re.compile(r'"[^\s"\\]{1,64}"|-?\d{1,20}(?![\d.eE])')
_NUMBER = re.compile(r"-?\d")
_NAME = re.compile(r'"[^"\\\n]{1,80}"')
_DATE = re.compile(r'"\d{4}-\d\d(?:-\d\d)?(?:[T ]\d\d:\d\d[^"\n]{0,16})?"')
_LONGEST = 100
# A name of more words is a sentence.
_MOST_WORDS = 10
_NEARLY_ALL = 0.9


def identifying(source: str, children: Sequence[Node]) -> frozenset[int]:
    """Where the members begin that identify the objects among `children`; the work grows with their length."""
    records = [child for child in children if child.inside is not None and source[child.value] == "{"]
    if not records:
        return frozenset()
    fields: dict[str, list[str]] = {}
    for record in records:
        for member in _short(record):
            fields.setdefault(member.key or "", []).append(source[member.value : member.end])
    chosen = _of_one(fields) if len(records) == 1 else _of_many(fields, len(records))
    return frozenset(member.start for record in records for member in _short(record) if member.key in chosen)


def _is_called_key(name: str) -> bool:
    """`id`, `orderId`, `file_path`; not `paid`."""
    parts = _PART_OF_NAME.findall(name[-40:])
    return bool(parts) and parts[-1].lower() in _CALLED_KEYS


def _short(record: Node) -> Iterator[Node]:
    for member in record.children:
        if member.inside is None and member.key is not None and member.end - member.start <= _LONGEST:
            yield member


def _of_one(fields: dict[str, list[str]]) -> set[str]:
    """Without siblings only what a member is called tells it: the first that is called a key."""
    called = [key for key, own in fields.items() if _is_called_key(key) and _class(own[0])]
    return set(called[:1])


def _of_many(fields: dict[str, list[str]], records: int) -> set[str]:
    chosen: dict[str, str] = {}
    ordered = sorted(fields, key=lambda key: not _is_called_key(key))
    for key in ordered:
        values = fields[key]
        is_unique = len(set(values)) >= _NEARLY_ALL * len(values) and len(values) * 2 >= records
        kind = _class_of_all(values, key) if is_unique else ""
        if kind and kind not in chosen:
            chosen[kind] = key
    # A key and a name say what it is; without either its date does.
    return {key for kind, key in chosen.items() if kind != "date" or len(chosen) == 1}


def _class_of_all(values: Sequence[str], key: str) -> str:
    """The class that most values have; bare numbers are a key only where they are called one."""
    classes = [_class(value) for value in values]
    best = Counter(classes).most_common(1)[0][0]
    if best == "key" and _NUMBER.match(values[0]) and not _is_called_key(key):
        return ""
    return best if classes.count(best) * 5 >= len(classes) * 4 else ""


def _class(value: str) -> str:
    if _DATE.fullmatch(value):
        return "date"
    if _KEY.fullmatch(value):
        return "key"
    if _NAME.fullmatch(value) and len(value.split()) <= _MOST_WORDS and any(map(str.isalpha, value)):
        return "name"
    return ""
