"""One real server for the whole session: `pith serve` on the embedded models, with its own state and port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.running import Server, running_server, start_server, stop_server, write_config


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the server; what stops it comes after all else."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pid = request.config.getoption("--running-server")
    if pid is not None:
        yield running_server(pid)
        return
    state_dir = tmp_path_factory.mktemp("server")
    running = start_server(write_config(state_dir), state_dir)
    yield running
    stop_server(running)


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
