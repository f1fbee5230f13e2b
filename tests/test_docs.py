"""The pages that users rely on name what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.options import ACCEPTED_WITHOUT_EFFECT, REFUSED, REFUSED_PREFIXES, USED
from serve.errors import STATUSES

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


@pytest.mark.parametrize("page", ["README.md", "docs/request.md", "CONTRIBUTING.md", "docs/errors.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    named = re.findall(
        r"`((?:serve|models|billing|compression|docs|configs|benchmarks|tests)/[\w./-]+)`", text
    )
    missing = [name for name in linked if not ((ROOT / page).parent / name).exists()]
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing
