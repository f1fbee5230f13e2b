"""One service with a compression model for each module, and as each of its tests has it: new and empty."""

from __future__ import annotations

import pytest_asyncio

from tests.serve.compressing import Compressing


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_service: Compressing) -> Compressing:
    return await module_service.renewed()
