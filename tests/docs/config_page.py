"""The page of every key of a configuration file, from the schema of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.docs.api_page import anchor, default_of, row, told, type_of

Schema = Mapping[str, Any]
# Where the entries of `models` go, by their kind; no key of a file.
BY_KIND = "retrieval_models"
RETRIEVAL = "models[] of kind embedding or rerank"


def page(about: str, schema: Schema) -> str:
    sections = list(sections_of(schema, schema["$defs"], ""))
    top = [one for one in sections[0][1] if BY_KIND not in one]
    return (
        "\n\n".join(
            [
                f"# Every key of the configuration\n\n{about}",
                table(top),
                *(f"## `{path}`\n\n{table(rows)}" for path, rows in sections[1:]),
            ]
        )
        + "\n"
    )


def table(rows: list[str]) -> str:
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def sections_of(schema: Schema, defs: Schema, path: str) -> Iterator[tuple[str, list[str]]]:
    """The path of each section with the rows of its keys; sections within it come after it."""
    below: list[tuple[str, Schema]] = []
    rows: list[str] = []
    for name, one in schema.get("properties", {}).items():
        inner, is_list = section_in(one, defs)
        here = f"{path}.{name}".lstrip(".") + ("[]" if is_list else "")
        here = RETRIEVAL if name == BY_KIND else here
        if inner is None:
            needed = name in schema.get("required", ())
            rows.append(row(f"`{name}`", type_of(one), "required" if needed else default_of(one), told(one)))
        else:
            rows.append(
                row(f"`{name}`", f"[{'entries' if is_list else 'section'}](#{anchor(here)})", "", told(one))
            )
            below.append((here, inner))
    yield path, rows
    for here, inner in below:
        yield from sections_of(inner, defs, here)


def section_in(one: Schema, defs: Schema) -> tuple[Schema | None, bool]:
    """The section that a key holds, and whether it holds a list of them."""
    if "$ref" in one:
        found = defs[one["$ref"].rsplit("/", 1)[1]]
        return (found, False) if found.get("properties") else (None, False)
    if one.get("type") == "array":
        return section_in(one.get("items", {}), defs)[0], True
    for each in one.get("anyOf", ()):
        if "$ref" in each:
            return section_in(each, defs)
    return None, False
