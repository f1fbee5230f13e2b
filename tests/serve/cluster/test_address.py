"""What of a request goes to a replica of another version, and what does not go to it at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.engine import EngineRequest
from models.errors import EngineUnavailable
from serve.cluster.replicas.address import READ_BY_ALL, READS, Address, address_of, readable, request_of

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
