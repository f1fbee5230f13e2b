"""The pages that users rely on name what the code has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from billing.errors import LimitName
from billing.usage import MeteringStatus
from compression.flags import CODES
from compression.workers.lanes import REASONS
from models.options.options import ACCEPTED_WITHOUT_EFFECT, REFUSED, REFUSED_PREFIXES, USED
from serve.config.compression_models import CompressionModelSettings
from serve.http.errors import STATUSES
from serve.metrics.charged_requests import LOST, OUTCOMES
from serve.metrics.counts import Counts, Families
from serve.metrics.families import FAMILIES
from serve.metrics.request_watch import HttpMetrics

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("option", sorted(USED | ACCEPTED_WITHOUT_EFFECT | REFUSED.keys()))
def test_every_chat_option_is_documented(option: str) -> None:
    assert re.search(rf"`{option}[`:]", (ROOT / "docs/chat-options.md").read_text())


@pytest.mark.parametrize("reason", [*REFUSED.values(), *REFUSED_PREFIXES.values()])
def test_every_refusal_is_documented_with_its_reason(reason: str) -> None:
    assert reason in (ROOT / "docs/chat-options.md").read_text()


@pytest.mark.parametrize("code", sorted({row.code for row in STATUSES.values()}))
def test_every_error_code_is_documented(code: str) -> None:
    assert f"`{code}`" in (ROOT / "docs/errors.md").read_text()


@pytest.mark.parametrize("code", CODES)
def test_every_risk_flag_has_a_section_with_its_severity_and_an_example(code: str) -> None:
    sections = (ROOT / "docs/compression.md").read_text().split("\n### ")
    found = [section for section in sections if section.startswith(f"`{code}`\n")]
    assert len(found) == 1, f"docs/compression.md has {len(found)} sections of {code}"
    section = found[0]
    assert section.split("\n\n")[1].startswith(f"{CODES[code].capitalize()}. ") and "Example: " in section


def test_the_page_of_metrics_names_each_with_its_type_and_labels_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(pith_\w+)` \| (\w+) \| ([\w` ]*)\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    documented = {(name, kind, tuple(sorted(re.findall(r"\w+", labels)))) for name, kind, labels in rows}
    counted = {
        (row.name + ("_total" if row.kind == "counter" else ""), row.kind, tuple(sorted(row.labels)))
        for row in FAMILIES.values()
        if row.name.startswith("pith_")
    }
    assert documented == counted


def test_each_family_of_the_table_is_counted_and_no_other() -> None:
    table = (ROOT / "serve/metrics/families.py").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "serve").rglob("*.py")).replace(table, "")
    kinds = ("chat", "compress", "retrieval")
    of_each_kind = {f"pith_{kind}_{of}" for kind in kinds for of in ("requests", "request_duration_seconds")}
    unused = [name for name in FAMILIES.keys() - of_each_kind if f'"{name}"' not in sources]
    assert not unused
    assert not re.findall(
        r"(?:Counter|Gauge|Histogram|GaugeMetricFamily|CounterMetricFamily)\(\s*[\"f]", sources
    )


@pytest.mark.parametrize(
    "value", [*OUTCOMES, *get_args(MeteringStatus), LOST, *REASONS, *get_args(LimitName)]
)
def test_every_fixed_value_of_a_metrics_label_is_documented(value: str) -> None:
    assert f"`{value}`" in (ROOT / "docs/metrics.md").read_text()


def test_every_scope_of_a_refusal_is_in_its_metrics_row() -> None:
    counts = Counts()
    HttpMetrics(Families(counts))
    scopes = {series.labels["scope"] for series, _ in counts.read() if "scope" in series.labels}
    row = re.search(
        r"^\| `pith_rate_limit_refusals_total`.*$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    assert row and scopes >= {"project", "key"} and all(f"`{scope}`" in row[0] for scope in scopes)


@pytest.mark.parametrize("key", CompressionModelSettings.model_fields)
def test_every_key_of_a_compression_model_is_documented(key: str) -> None:
    assert re.search(rf"^\|[^|]*`{key}[`:]", (ROOT / "docs/compression.md").read_text(), re.MULTILINE)


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    named = re.findall(
        r"`((?:serve|models|billing|compression|docs|configs|benchmarks|tests)/[\w./-]+)`", text
    )
    missing = [name for name in linked if not ((ROOT / page).parent / name).exists()]
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing


@cache
def anchors(path: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them; and its HTML ids."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    named = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return named | {*re.findall(r'id="([^"]+)"', text)}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "SECURITY.md"])
def test_every_anchor_that_a_page_names_exists(page: str) -> None:
    path = ROOT / page
    linked = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", path.read_text())
    missing = [
        f"{name}#{anchor}"
        for name, anchor in linked
        if anchor not in anchors((path.parent / name) if name else path)
    ]
    assert not missing


def rows(page: str) -> set[str]:
    """The files that a page's tables link in their first column, relative to the page's folder."""
    return set(re.findall(r"^\| \[[^\]]*\]\(([^)#]+)\) \|", (ROOT / page).read_text(), re.MULTILINE))


def test_the_index_of_the_docs_has_every_page() -> None:
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"README.md"}
    folders = {path.parent for path in docs.rglob("README.md")} - {docs}
    # A folder with an index of its own is one row.
    below = {page for page in pages for folder in folders if (docs / page).is_relative_to(folder)}
    indexes = {str((folder / "README.md").relative_to(docs)) for folder in folders}
    assert rows("docs/README.md") == (pages - below) | indexes


INDEXES = [
    path for path in sorted((ROOT / "docs").rglob("*/README.md")) if len(list(path.parent.glob("*.md"))) > 1
]


@pytest.mark.parametrize("index", [str(path.relative_to(ROOT)) for path in INDEXES])
def test_the_index_of_a_folder_has_every_page_of_it(index: str) -> None:
    pages = {path.name for path in (ROOT / index).parent.glob("*.md")} - {"README.md"}
    assert rows(index) == pages


def torn_tables(text: str) -> list[str]:
    """Rows that no table has: their block has no line of dashes below its head, or another number of cells."""
    blocks = re.findall(
        r"(?:^\|.*\n?)+", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    found = []
    for block in blocks:
        lines = block.strip().splitlines()
        widths = [len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) for line in lines]
        if len(lines) < 2 or not re.fullmatch(r"[|\-: ]+", lines[1]):
            found.append(lines[0])
        found += [line for line, width in zip(lines, widths, strict=True) if width != widths[0]]
    return found


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "SECURITY.md"])
def test_no_table_of_a_page_is_torn(page: str) -> None:
    assert not torn_tables((ROOT / page).read_text())


def test_a_table_is_torn_by_an_empty_line_and_by_a_cell_too_many() -> None:
    head = "| a | b |\n|---|---|\n"
    assert torn_tables(head + "| 1 | `x|y` \\| z |\n") == []
    assert torn_tables(head + "| 1 | 2 |\n\n| 3 | 4 |\n") == ["| 3 | 4 |"]
    assert torn_tables(head + "| 1 | 2 | 3 |\n") == ["| 1 | 2 | 3 |"]
