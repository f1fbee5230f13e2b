"""Every test of this folder starts Ray, vLLM or a server, or needs the session's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.installed import build_wheel, install_by_pip
from tests.integration.running import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def by_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment into which pip installed pith's wheel."""
    return install_by_pip(build_wheel(tmp_path_factory.mktemp("dist")), tmp_path_factory.mktemp("here"))


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
