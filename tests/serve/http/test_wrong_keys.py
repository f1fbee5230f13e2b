"""A flood of wrong keys is told to stop, and shuts nobody out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from billing.accounts.keys import mint
from billing.errors import InvalidKey
from serve.http.auth import bearer_key
from serve.http.errors import MissingKey
from serve.http.limits import AT_ONCE, MAX_CLIENTS, TooManyWrongKeys, WrongKeys
from tests.serve.served import Served, serving

NOW = datetime(2026, 11, 22, tzinfo=UTC)
WRONG = InvalidKey("unknown id")


@pytest_asyncio.fixture
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield await service.renewed()


@pytest.mark.asyncio
async def test_random_keys_get_429_and_a_right_key_from_the_same_address_is_let_in(served: Served) -> None:
    found = [await served.get("/v1/models", key=mint().token).run() for _ in range(AT_ONCE + 20)]
    statuses = [each.status for each in found]
    assert statuses[:AT_ONCE] == [403] * AT_ONCE
    assert statuses[-1] == 429
    assert int(found[-1].reply_headers["retry-after"]) >= 1
    assert found[-1].json()["error"]["code"] == "too_many_wrong_keys"
    assert (await served.get("/v1/models").run()).status == 200
    assert (await served.get("/v1/models", key="malformed").run()).status == 429


def told(wrong_keys: WrongKeys, client: str, after_s: float = 0) -> type[Exception]:
    return type(wrong_keys.add(client, WRONG, now=NOW + timedelta(seconds=after_s)))


def test_clients_are_counted_apart_and_forgiven_with_time() -> None:
    wrong_keys = WrongKeys()
    for _ in range(10 * AT_ONCE):
        last = told(wrong_keys, "one")
    assert last is TooManyWrongKeys
    assert told(wrong_keys, "other") is InvalidKey
    assert told(wrong_keys, "one", 10) is InvalidKey
    # A clock that steps back forgives nothing, and holds nothing against anyone.
    assert told(wrong_keys, "other", -3600) is InvalidKey


def test_no_more_clients_are_remembered_than_a_bound() -> None:
    wrong_keys = WrongKeys()
    for at in range(MAX_CLIENTS + 10):
        told(wrong_keys, str(at))
    assert len(wrong_keys._counts) == MAX_CLIENTS


@pytest.mark.parametrize("space", ["\xa0", "\x85", "\x1c", "\u2003", "\x0c"])
def test_only_what_http_calls_white_space_is_trimmed_off_a_key(space: str) -> None:
    assert bearer_key("Bearer  key\t ") == "key"
    assert bearer_key(f"Bearer key{space}") == f"key{space}"
    assert bearer_key(f"Bearer {space}key") == f"{space}key"
    with pytest.raises(MissingKey):
        bearer_key(f"Bearer{space}key")
