"""One service with a compression model for each module, and as each of its tests has it: new and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.serve.compressing import Compressing, compressing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path_factory.mktemp("compressing")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def served(service: Compressing) -> Compressing:
    return await service.renewed()
