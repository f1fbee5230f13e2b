"""What of a request goes to a replica of another version, and what does not go to it at all."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from models.engine import EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineDied, EngineUnavailable
from serve.cluster.replicas.address import (
    READ_BY_ALL,
    READS,
    READS_KEY,
    Address,
    address_of,
    readable,
    request_of,
)
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.port import ReplicaPort
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from tests.serve.cluster.one_replica import FakeEngineHandle

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from serve.cluster.replicas.engine import RayEngine

ADDRESS = Address("127.0.0.1", 1, "token", READS)
ASKED = EngineRequest("id", "model", ({"role": "user", "content": "hi"},), 16, True, "salt", survives=True)


def test_an_address_is_what_the_replica_says_of_itself_and_one_that_says_less_reads_less() -> None:
    told = ADDRESS.metadata()
    assert address_of(told) == ADDRESS
    assert address_of({"pith_port": told["pith_port"]}) == replace(ADDRESS, reads=READ_BY_ALL)
    # A version before takes these three and no more.
    assert told["pith_port"] == {"host": "127.0.0.1", "port": 1, "token": "token"}


def test_what_a_request_can_do_without_is_left_out_for_a_replica_that_does_not_read_it() -> None:
    assert readable(ASKED, READS).keys() == READS
    found = readable(ASKED, READ_BY_ALL)
    assert found.keys() == READ_BY_ALL and request_of(found) == replace(ASKED, survives=False)


def test_a_reply_goes_on_only_where_it_is_known_what_was_said() -> None:
    begun = replace(ASKED, said=(1, 2, 3))
    assert request_of(readable(begun, READS)) == begun
    with pytest.raises(EngineUnavailable, match="knows no said"):
        readable(begun, READ_BY_ALL)


async def test_no_replica_goes_on_with_a_reply_that_it_would_begin_anew() -> None:
    asked, avoided, told = list[EngineRequest](), list[Any](), dict[str, Any]()

    async def generate(request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        asked.append(request)
        yield EngineChunk(b'data: {"choices":[]}\n\n', TokenUsage(3, 1), finished=False, reply=(7,))
        # The next one is of a version before.
        del told[READS_KEY]
        raise RuntimeError("it dies")

    port, client = ReplicaPort(generate), ReplicaClient()
    told |= (await port.open("127.0.0.1")).metadata()
    handle: Any = FakeEngineHandle(told)
    handle._router._asyncio_router.request_router.avoid = avoided.append
    server = ServerSettings(survival_wait_s=0.3)
    engine = RayEngine("model:a", handle, client, replicas=ReplicaSettings(), server=server)
    with pytest.raises(EngineDied):
        async for _ in engine.generate(ASKED):
            pass
    assert [request.survives for request in asked] == [True]
    # For its death, and not for what it cannot answer.
    assert len(avoided) == 1
    await client.close()
    await port.close()
