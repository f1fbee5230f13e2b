"""The pages that users rely on name what the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from billing.errors import LimitName
from billing.usage import MeteringStatus
from compression.flags import CODES
from compression.workers.observer import REASONS
from models.options.options import USED
from models.options.unsupported import ACCEPTED_WITHOUT_EFFECT, REFUSED, REFUSED_PREFIXES
from serve.config.compression_models import CompressionModelSettings
from serve.http.errors import STATUSES
from serve.metrics.compression_workers import PoolMetrics
from serve.metrics.money import LOST
from serve.metrics.ops_port import SpoolGauges
from serve.metrics.outcome import OUTCOMES
from serve.metrics.service import ServiceMetrics
from serve.metrics.upkeep import UpkeepMetrics

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


def exposed_metrics() -> set[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of every metric of the ops port."""
    registry = CollectorRegistry()
    metrics = ServiceMetrics(registry, chat_models=["m"], compression_models=["m"])
    PoolMetrics(registry, "m")
    UpkeepMetrics(registry)
    # These have no series before a request.
    metrics.http.requests.labels("/", "GET", "200")
    metrics.http.duration.labels("/", "GET")
    families = [*registry.collect(), *SpoolGauges(Path("no spool")).collect()]
    return {
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(sorted(family.samples[0].labels.keys() - {"le"})),
        )
        for family in families
    }


def test_the_page_of_metrics_names_each_with_its_type_and_labels_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(pith_\w+)` \| (\w+) \| ([\w` ]*)\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    documented = {(name, kind, tuple(sorted(re.findall(r"\w+", labels)))) for name, kind, labels in rows}
    assert documented == exposed_metrics()


@pytest.mark.parametrize(
    "value", [*OUTCOMES, *get_args(MeteringStatus), LOST, *REASONS, *get_args(LimitName)]
)
def test_every_fixed_value_of_a_metrics_label_is_documented(value: str) -> None:
    assert f"`{value}`" in (ROOT / "docs/metrics.md").read_text()


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


def test_the_index_of_the_docs_has_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text()))
