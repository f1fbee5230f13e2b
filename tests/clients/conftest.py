"""Released clients on the session's server. Their environments are made in the background, while other tests run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients import record
from tests.clients.environments import ROOT, CannotInstall, Environment, environment, pinned
from tests.clients.record import Row
from tests.clients.running import ClientRun
from tests.integration.missing import cannot_run
from tests.integration.running import Server, wait_for

HERE = Path(__file__).parent
Making = dict[str, Future[Environment]]
MAKING = pytest.StashKey[Making]()
# As many as a small machine has cores; uv and npm each fetch many files at a time by themselves.
MAKERS = 2
LONG_MODEL = "pith-base"
# `make test` runs these, and `make test-long` the others.
MAIN = ("anthropic", "anthropic-node", "langchain", "openai", "openai-node")
START_S = 120


def client_of(item: pytest.Item) -> tuple[str, str] | None:
    """The client's name and what is done with it, as the test's mark says."""
    mark = item.get_closest_marker("client")
    return mark.args if mark else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if found := client_of(item):
            item.add_marker(pytest.mark.integration)
            if found[0] not in MAIN:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to make what the selected tests need."""
    if session.config.option.collectonly:
        return
    makers = ThreadPoolExecutor(MAKERS, thread_name_prefix="client-environments")
    session.config.add_cleanup(lambda: makers.shutdown(cancel_futures=True))
    names = dict.fromkeys(found[0] for item in session.items if (found := client_of(item)))
    session.config.stash[MAKING] = {name: makers.submit(environment, name) for name in names}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (found := client_of(item)) and (report.when == "call" or report.failed):
        name, done = found
        result = record.WORKS if report.passed else report.outcome
        record.write(Row(*pinned(name), done, result))
    return report


@pytest.fixture(scope="session")
def models() -> dict[str, str]:
    """The first model of each kind that the server's configuration has."""
    listed = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())["models"]
    return {model.get("kind", "chat"): model["id"] for model in reversed(listed)}


@pytest.fixture
def client_run(
    request: pytest.FixtureRequest, server: Server, models: dict[str, str], tmp_path: Path
) -> ClientRun:
    """Runs scripts of the client that the test's mark names."""
    name, _ = client_of(request.node) or pytest.fail("the test has no @pytest.mark.client(NAME, DONE)")
    try:
        made = request.config.stash[MAKING][name].result()
    except CannotInstall as error:
        cannot_run(str(error))
    return ClientRun(made, server.url, server.key, models, tmp_path)


@pytest.fixture
def long_model(server: Server) -> Callable[[], str]:
    """Wakes a model with room for the 20,000 tokens of instructions and tools that an assistant begins with."""
    chat = {"model": LONG_MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}

    def wake() -> str:
        with server.client() as client:
            wait_for(
                lambda: client.post("/v1/chat/completions", json=chat).is_success,
                timeout_s=START_S,
                what=f"{LONG_MODEL} answers",
            )
        return LONG_MODEL

    return wake
