"""What crosses between processes of the release before and of this one, by what the former wrote (`before.json`)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import EngineUnavailable
from tests.two_versions import wire
from tests.two_versions.before import BEFORE, NoSuchCommit, code_of, run

BEFORE_WROTE: wire.Samples = json.loads(Path(__file__).with_name("before.json").read_text())


def test_what_the_version_before_wrote_is_read() -> None:
    assert wire.troubles(BEFORE_WROTE, wire.read(BEFORE_WROTE)) == []


def test_a_request_has_no_field_that_the_version_before_does_not_read() -> None:
    known = BEFORE_WROTE["requests"][0]["fields"].keys()
    for request in wire.requests():
        asked = wire.asked(request)[wire.port.ASKED.size :]
        assert json.loads(asked).keys() <= known


def test_what_the_version_before_would_answer_otherwise_is_not_asked_of_it() -> None:
    bare, *_ = wire.requests()
    required = {"request_id", "model_id", "messages", "max_tokens", "stream", "cache_salt"}
    assert wire.GIVEN.keys() | wire.REFUSED.keys() | required == wire.plain(bare).keys()
    for name, value in wire.REFUSED.items():
        with pytest.raises(EngineUnavailable, match=f"knows no {name}"):
            wire.asked(dataclasses.replace(bare, **{name: value}))


def test_fields_of_what_is_pickled_are_added_at_the_end() -> None:
    """It is pickled as a list of values: one in the middle would be taken for another. Whoever adds a field gives the
    class a `__setstate__`, as `models.engine.EngineRequest` has."""
    before = {sample["name"]: [*sample["fields"]] for sample in BEFORE_WROTE["pickled"]}
    now = {name: [*wire.plain(value)] for name, value in wire.pickled()}
    del before["Settings"], now["Settings"]
    assert now.keys() == before.keys()
    for name, fields in before.items():
        assert now[name][: len(fields)] == fields, name


def test_a_field_in_the_middle_is_noticed() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Torn:
        first: str
        second: str

    def read(found: Any) -> wire.Samples:
        return {"pickled": [{"fields": wire.plain(found), "defaults": {}}]}

    wrote: wire.Samples = {"pickled": [{"name": "Torn", "fields": {"first": "a", "second": "b"}}]}
    assert wire.troubles(wrote, read(Torn("a", "b"))) == []
    assert wire.troubles(wrote, read(Torn("b", "a"))) != []


def test_the_version_before_reads_what_this_one_writes() -> None:
    program, written = Path(wire.__file__).read_text(), wire.write()
    try:
        with code_of(BEFORE) as code:
            wrote = json.loads(run(code, program, "write"))
            read = json.loads(run(code, program, "read", given=json.dumps(written).encode()))
    except NoSuchCommit as error:
        pytest.skip(str(error))
    assert wire.troubles(written, read) == []
    fields = [[(one["name"], one["fields"]) for one in each["pickled"]] for each in (wrote, BEFORE_WROTE)]
    assert fields[0] == fields[1]
    assert [wrote[way] for way in ("requests", "items")] == [
        BEFORE_WROTE[way] for way in ("requests", "items")
    ]
