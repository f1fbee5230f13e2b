"""One vLLM engine in this process, for every test that asks one what it says."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from models.embedded.install import ensure_checkpoints
from models.engine_kinds import ENGINE_LIMITS
from tests.models.vllm.started import started

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

CONTEXT = 2048
HERE = Path(__file__).parent
# vLLM reads them when it is imported.
os.environ.update(ENGINE_LIMITS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them, so that one part of the tests alone imports vLLM, which takes longer than most of them do."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VLLMEngine]:
    """On the first embedded model."""
    folder = ensure_checkpoints(tmp_path_factory.mktemp("checkpoints"))["pith-mini"]
    async with started(folder, tmp_path_factory.mktemp("engine"), context=CONTEXT) as engine:
        yield engine
