"""A page of Markdown from an OpenAPI document: each route with what it takes and answers, then the objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
# Taken by every route: said once, at the top of a page.
COMMON = ("X-Request-ID",)


def page(title: str, about: str, document: Schema) -> str:
    """The whole page. The document's own order is kept: what is used most comes first."""
    routes = list(operations(document))
    parts = [f"# {title}\n\n{about}", *route_table(routes), *headers_of(routes), "## Routes"]
    parts += [part for method, path, route in routes for part in route_section(method, path, route)]
    parts += [
        "## Objects",
        *(part for each in document["components"]["schemas"].items() for part in object_section(*each)),
    ]
    return "\n\n".join(parts) + "\n"


def operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield method.upper(), path, route


def route_table(routes: list[tuple[str, str, Schema]]) -> Iterator[str]:
    rows = [
        f"| [`{method} {path}`](#{anchor(f'{method} {path}')}) | {key_of(route)} "
        f"| {text(route.get('description') or route.get('summary', ''))} |"
        for method, path, route in routes
    ]
    yield "\n".join(["| route | key | what it does |", "|---|---|---|", *rows])


def key_of(route: Schema) -> str:
    """Whether a route wants a key; one of several ways to ask is enough, and an empty one is no key."""
    ways = route.get("security", [])
    return ("optional" if {} in ways else "yes") if ways else ""


def headers_of(routes: list[tuple[str, str, Schema]]) -> Iterator[str]:
    """Every header of a response, once: most routes have the same ones."""
    found: dict[str, str] = {}
    for _, _, route in routes:
        for response in route["responses"].values():
            for name, header in response.get("headers", {}).items():
                found.setdefault(name, text(header.get("description", "")))
    if found:
        rows = [
            f"| `{name}` | {said} |" for name, said in sorted(found.items(), key=lambda one: one[0].lower())
        ]
        yield "\n".join(["## Headers of responses", "", "| header | meaning |", "|---|---|", *rows])


def route_section(method: str, path: str, route: Schema) -> Iterator[str]:
    yield f"### `{method} {path}`"
    if said := route.get("description"):
        yield said
    if given := [one for one in route.get("parameters", ()) if one["name"] not in COMMON]:
        rows = [
            row(f"`{one['name']}`", one["in"], type_of(one["schema"]), default_of(one["schema"]), told(one))
            for one in given
        ]
        yield "\n".join(["| parameter | in | type | default | meaning |", "|---|---|---|---|---|", *rows])
    if body := route.get("requestBody"):
        yield "Body: " + contents(body) + "."
        yield from (table for one in body["content"].values() for table in fields(one.get("schema", {})))
    rows = [row(status, told(answer), contents(answer)) for status, answer in answers(route, error=False)]
    yield "\n".join(["| status | answer | body |", "|---|---|---|", *rows])
    if said := [f"{status} {told(answer).rstrip('.')}" for status, answer in answers(route, error=True)]:
        yield "Errors: " + "; ".join(said) + "."


def answers(route: Schema, *, error: bool) -> list[tuple[str, Schema]]:
    return [(status, answer) for status, answer in route["responses"].items() if (status >= "400") == error]


def contents(of: Schema) -> str:
    kinds = of.get("content", {})
    return ", ".join(
        f"`{kind}`" + (f": {type_of(one['schema'])}" if is_told(one.get("schema")) else "")
        for kind, one in kinds.items()
    )


def is_told(schema: Schema | None) -> bool:
    return bool(schema) and schema not in (
        {"type": "object", "additionalProperties": True},
        {"type": "object"},
    )


def object_section(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}"
    if said := schema.get("description"):
        yield said
    yield from list(fields(schema)) or [f"A value: {type_of(schema)}."]


def fields(schema: Schema) -> Iterator[str]:
    needed = schema.get("required", ())
    rows = [
        row(f"`{field}`", type_of(one), "required" if field in needed else default_of(one), told(one))
        for field, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def type_of(schema: Schema) -> str:
    """A type in words, with its bounds; an object of the page is linked."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{anchor(name)})"
    if several := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(type_of(one) for one in several))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array" and schema.get("items"):
        words = f"array of {type_of(schema['items'])}"
    limits = [said.format(f"{schema[name]:,}") for name, said in BOUNDS.items() if name in schema]
    return ", ".join([words, *limits])


def default_of(schema: Schema) -> str:
    found = schema.get("default")
    return "" if found is None else f"`{found}`".replace("`True`", "`true`").replace("`False`", "`false`")


def told(one: Schema) -> str:
    return text(one.get("description", ""))


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def text(words: str) -> str:
    return " ".join(words.split())


def anchor(heading: str) -> str:
    """As GitHub and the site make it of a heading."""
    kept = (char for char in heading.lower() if char.isalnum() or char in " -_")
    return "".join(kept).replace(" ", "-")
