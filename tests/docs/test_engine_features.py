"""Each block of the page of engine features is one that `pith config check` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.config.settings import load_settings
from tests.command_blocks import fences

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/engine-features.md").read_text(encoding="utf-8")
BLOCKS = [(line, "\n".join(body)) for line, language, body in fences(PAGE) if language == "yaml"]


@pytest.mark.parametrize("block", [body for _, body in BLOCKS], ids=[f"line {line}" for line, _ in BLOCKS])
def test_a_block_can_be_pasted(block: str, tmp_path: Path) -> None:
    file = tmp_path / "pith.yaml"
    file.write_text(block, encoding="utf-8")
    assert load_settings(file).models


def test_there_are_blocks() -> None:
    documents: list[dict[str, Any]] = [yaml.safe_load(body) for _, body in BLOCKS]
    assert documents and all("models" in document for document in documents)
