"""What a test needs from outside the environment, and what happens where it is missing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot_run(why: str) -> NoReturn:
    """CI promises this evidence; a developer's machine may lack what it takes."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
