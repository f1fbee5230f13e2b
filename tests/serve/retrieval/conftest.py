"""One service with fake retrieval models for each module, and as each of its tests has it: new and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.serve.retrieval.serving import Retrieving, retrieving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def retrieval(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Retrieving]:
    async with retrieving(tmp_path_factory.mktemp("retrieving")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def here(retrieval: Retrieving) -> Retrieving:
    return await retrieval.renewed()
