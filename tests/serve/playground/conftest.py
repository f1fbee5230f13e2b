"""One browser for the tests of a module, and pages that report what no page may do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from models.fake_engine import FakeEngine
from serve.config.compression_models import DemoCompressionSettings
from tests.serve.loopback_service import Running, service
from tests.serve.playground.lexical import LexicalModel
from tests.serve.playground.watched import Watched, chromium, watched

DEMO = DemoCompressionSettings(requests_per_minute_per_address=600, requests_per_minute=600)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def running(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service in this process: the real compressor of the embedded profile, and a fake engine."""
    folder = tmp_path_factory.mktemp("playground")
    with service(folder, engine, compressor=LexicalModel(), demo=DEMO) as found:
        yield found


@pytest.fixture
def page(running: Running, browser: Browser) -> Iterator[Watched]:
    """The playground on a desktop's screen; the service is there before Playwright's loop.

    A violation of the policy or an error in a script fails the test.
    """
    with watched(browser, running.url) as found:
        yield found
