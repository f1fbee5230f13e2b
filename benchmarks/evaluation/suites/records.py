"""The same made-up orders in every shape that lists take: JSON, JSON lines, YAML, CSV, TSV, tables drawn or aligned.

A question names one order by its number, one by a value that is its alone, or the order before or with the most of
something: what must survive is a value of that order.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.evaluation.case import Case, Need, Span, seeded

RECORDS = 60
CASES = 12
CITIES = ("Oslo", "Lima", "Cairo", "Perth", "Quito", "Turin", "Osaka", "Leeds", "Sofia", "Dakar")
THINGS = ("lamp", "kettle", "chair", "drill", "tent", "scarf", "clock", "ladder", "bicycle", "radio")
STATES = ("shipped", "pending", "cancelled", "returned", "delivered")
NAMES = ("Adam", "Berta", "Chen", "Dora", "Emil", "Fatma", "Goran", "Hana", "Igor", "Jana")
SURNAMES = ("Abel", "Brandt", "Cruz", "Dahl", "Evans", "Fuchs", "Gomez", "Hirsch", "Ito", "Jonas")
FIELDS = ("order_id", "customer", "item", "city", "status", "amount", "tracking")
Row = dict[str, Any]


def rows_of(name: str) -> list[Row]:
    rng = seeded(f"records {name}")
    people = [f"{first} {last}" for first in NAMES for last in SURNAMES]
    rng.shuffle(people)
    amounts = rng.sample(range(1000, 90000), RECORDS)
    return [
        {
            "order_id": f"SO-{4100 + 7 * number}",
            "customer": people[number],
            "item": rng.choice(THINGS),
            "city": rng.choice(CITIES),
            "status": rng.choice(STATES),
            "amount": amounts[number] / 100,
            "tracking": "".join(rng.choices("BCDFGHJKLM23456789", k=12)),
        }
        for number in range(RECORDS)
    ]


def _nested(row: Row) -> Row:
    """As an API gives it: the same values on several levels."""
    return {
        "id": row["order_id"],
        "customer": {"name": row["customer"], "address": {"city": row["city"], "country": "n/a"}},
        "lines": [{"product": row["item"], "quantity": 1, "amount": row["amount"]}],
        "status": row["status"],
        "shipment": {"carrier": "Post", "tracking": row["tracking"], "notes": None},
    }


def _separated(rows: list[Row], mark: str) -> str:
    lines = [mark.join(FIELDS), *(mark.join(str(row[field]) for field in FIELDS) for row in rows)]
    return "\n".join(lines) + "\n"


def _markdown(rows: list[Row]) -> str:
    lines = [FIELDS, tuple("---" for _ in FIELDS), *([str(row[field]) for field in FIELDS] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _aligned(rows: list[Row]) -> str:
    """As `kubectl get` and `df` print."""
    lines = [[field.upper() for field in FIELDS]]
    lines += [[str(row[field]).replace(" ", "-") for field in FIELDS] for row in rows]
    widths = [max(map(len, column)) + 3 for column in zip(*lines, strict=True)]
    return "\n".join("".join(map(str.ljust, line, widths)).rstrip() for line in lines) + "\n"


def _psql(rows: list[Row]) -> str:
    lines = [list(FIELDS), *([str(row[field]) for field in FIELDS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = [" " + " | ".join(map(str.ljust, line, widths)) for line in lines]
    rule = "+".join("-" * (width + 2) for width in widths)
    return "\n".join([drawn[0], rule, *drawn[1:], f"({len(rows)} rows)"]) + "\n"


def _yaml(rows: list[Row]) -> str:
    parts = []
    for row in rows:
        first, *others = FIELDS
        parts.append(f"- {first}: {row[first]}")
        parts += [f"  {field}: {row[field]}" for field in others]
    return "orders:\n" + "\n".join(parts) + "\n"


def _xml(rows: list[Row]) -> str:
    parts = []
    for row in rows:
        inside = "\n".join(f"    <{field}>{row[field]}</{field}>" for field in FIELDS)
        parts.append(f"  <order>\n{inside}\n  </order>")
    return "<orders>\n" + "\n".join(parts) + "\n</orders>\n"


def _feed(rows: list[Row]) -> str:
    """As a feed has its items: after elements of its own, with a namespace and a text that is quoted as a whole."""
    items = [
        f"<item><title>Order {row['order_id']}</title><dc:creator>{row['customer']}</dc:creator>"
        f"<description><![CDATA[<p>A {row['item']} for {row['city']}, {row['status']}. It comes to {row['amount']}.</p>"
        f"<p>The parcel is followed by {row['tracking']}.</p>]]></description></item>"
        for row in rows
    ]
    head = (
        "<title>Orders</title><link>https://example.org/orders</link><description>All of them</description>"
    )
    opening = '<?xml version="1.0"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel>'
    return f"{opening}{head}{''.join(items)}</channel></rss>"


def _attributes(rows: list[Row]) -> str:
    """As a report of tests has its cases: what is told stands in attributes."""
    cases = [
        f'  <order id="{row["order_id"]}" customer="{row["customer"]}" city="{row["city"]}">\n'
        f'    <line item="{row["item"]}" amount="{row["amount"]}"/>\n'
        f'    <shipment status="{row["status"]}" tracking="{row["tracking"]}"/>\n  </order>\n'
        for row in rows
    ]
    return f'<orders count="{len(rows)}">\n{"".join(cases)}</orders>\n'


def _graphql(rows: list[Row]) -> str:
    edges = [{"cursor": f"c{number}", "node": _nested(row)} for number, row in enumerate(rows)]
    return json.dumps({"data": {"orders": {"pageInfo": {"hasNextPage": False}, "edges": edges}}}, indent=2)


SHAPES: dict[str, Callable[[list[Row]], str]] = {
    "json": lambda rows: json.dumps(rows),
    "nested": lambda rows: json.dumps({"orders": [_nested(row) for row in rows]}, indent=2),
    "graphql": _graphql,
    "arrays": lambda rows: json.dumps(
        [FIELDS, *([row[field] for field in FIELDS] for row in rows)], indent=1
    ),
    "jsonl": lambda rows: "\n".join(json.dumps(row) for row in rows) + "\n",
    "yaml": _yaml,
    "csv": lambda rows: _separated(rows, ","),
    "tsv": lambda rows: _separated(rows, "\t"),
    "markdown": _markdown,
    "psql": _psql,
    "aligned": _aligned,
    "xml": _xml,
    "feed": _feed,
    "attributes": _attributes,
}


def suites() -> dict[str, Callable[[], Iterator[Case]]]:
    return {f"records_{shape}": _maker(shape) for shape in SHAPES}


def _maker(shape: str) -> Callable[[], Iterator[Case]]:
    return lambda: (_case(shape, number) for number in range(CASES))


def _case(shape: str, number: int) -> Case:
    suite = f"records_{shape}"
    name = f"{suite}-{number}"
    rows = rows_of(name)
    query, row = _question(number, rows, seeded(f"question {name}"), has_rows=_has_rows(shape))
    text = SHAPES[shape](rows)
    at = text.index(row["tracking"])
    span: Span = (at, at + len(row["tracking"]))
    return Case(
        suite, name, query, text, ((0, len(text)),), evidence=(span,), needs=(Need(row["tracking"], (span,)),)
    )


def _has_rows(shape: str) -> bool:
    return shape in ("csv", "tsv", "markdown", "psql", "aligned")


def _question(number: int, rows: list[Row], rng: Any, *, has_rows: bool) -> tuple[str, Row]:
    """Of rows, which have a place and columns, also the extremes and what comes before another."""
    at = rng.randrange(1, len(rows))
    row = rows[at]
    kinds = 4 if has_rows else 2
    if number % kinds == 0:
        return f"What is the tracking code of order {row['order_id']}?", row
    if number % kinds == 1:
        return f"Which tracking number does the order of {row['customer']} have?", row
    if number % kinds == 2:
        return "What is the tracking code of the order with the highest amount?", max(
            rows, key=lambda each: float(each["amount"])
        )
    return f"Which tracking code comes right before that of {row['order_id']}?", rows[at - 1]
