"""What holds for every test. What only some need stands in the conftest of their folder."""

from __future__ import annotations

import os

import hypothesis
import pytest

# A shared CI machine may be slow at any one example: there only the property decides, not how long it took.
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True)
hypothesis.settings.register_profile("here", deadline=2000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--running-server", type=int, metavar="PID", help="use this `pith serve` instead of starting one"
    )
