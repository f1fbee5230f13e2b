"""The databases of `tests/billing`, for originals with their texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.billing.conftest import books, database_url, postgres_server

__all__ = ["books", "database_url", "postgres_server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a PostgreSQL is left to the whole run."""
    here = Path(__file__).parent
    for item in items:
        given = getattr(item, "callspec", None)
        if here in item.path.parents and given is not None and "postgresql" in given.params.values():
            item.add_marker(pytest.mark.integration)
