"""The whole service, opened once for a module of tests, and as each of its tests has it: new and empty; and the one
with compression models, opened as often."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.serve.compressing import Compressing, compressing
from tests.serve.served import Served, serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def served(service: Served) -> Served:
    return await service.renewed()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path_factory.mktemp("compressing")) as found:
        yield found
