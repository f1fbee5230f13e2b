"""One service for each module of chats with compression, renewed and checked for each of its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.serve.compressing import Compressing


@pytest_asyncio.fixture(loop_scope="module")
async def service(module_service: Compressing) -> AsyncIterator[Compressing]:
    yield await module_service.renewed()
    await module_service.assert_nothing_is_left_open()
