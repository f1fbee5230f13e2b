"""Grammars on trial: what is cheap is not tried, what is too costly ends, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from models.errors import GrammarTooCostly, GrammarTrialsBusy
from models.grammar.trials import (
    CHEAP_CHARS,
    HELPER,
    MAX_REMEMBERED,
    MAX_WAITING,
    GrammarTrials,
    TrialTerms,
    is_cheap,
)

# A helper that does as it is told: it dies at once, says nothing, or is done.
FAKE_HELPER = """
import json, os, sys
sys.stdin.readline()
print("ok", flush=True)
for line in sys.stdin:
    spec = json.loads(line)["spec"]
    with open(sys.argv[1], "a") as log:
        log.write(spec + "\\n")
    if "dies" in spec:
        os._exit(1)
    if "hangs" not in spec:
        print("ok", flush=True)
"""
PATTERN = '{"pattern": "%s"}'


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what happens is in another process
            await asyncio.sleep(0.01)


class Trials(GrammarTrials):
    """With a fake helper whose log can be read."""

    def __init__(self, log: Any, **terms: Any) -> None:
        helper = (sys.executable, "-c", FAKE_HELPER, str(log))
        super().__init__(lambda: "{}", terms=TrialTerms(**terms), helper=helper)
        self.log = log

    def tried(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@asynccontextmanager
async def trials(folder: Any, **terms: Any) -> AsyncIterator[Trials]:
    found = Trials(folder / "log", **terms)
    try:
        yield found
    finally:
        await found.close()


async def test_a_grammar_is_tried_once_and_what_came_out_is_remembered(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        for _ in range(2):
            await found.check("json", PATTERN % "fine")
            with pytest.raises(GrammarTooCostly, match="10 s to compile"):
                await found.check("json", PATTERN % "dies")
        await found.check("structural_tag", PATTERN % "fine")
        assert found.tried() == [PATTERN % "fine", PATTERN % "dies", PATTERN % "fine"]


async def test_what_is_cheap_is_not_tried(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        await found.check("json", json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}))
        assert found.tried() == []


@pytest.mark.parametrize(
    ("schema", "cheap"),
    [
        ({}, True),
        ({"enum": ["a pattern: x", "format"]}, True),
        ({"title": "x" * CHEAP_CHARS}, False),
        ({"properties": {f"p{at}": {} for at in range(300)}}, False),
        *(({key: 1}, False) for key in ("pattern", "format", "minLength", "maxLength", "patternProperties")),
        *(({key: 1}, False) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    ],
)
def test_what_is_cheap(schema: dict[str, Any], cheap: bool) -> None:
    assert is_cheap(json.dumps(schema)) == cheap


async def test_those_who_ask_for_the_same_share_one_trial(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        await asyncio.gather(*(found.check("json", PATTERN % "fine") for _ in range(5)))
        assert len(found.tried()) == 1


async def test_no_more_wait_than_may(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        waiting = [asyncio.create_task(found.check("json", PATTERN % "hangs")) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(GrammarTrialsBusy):
            await found.check("json", PATTERN % "fine")
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await found.check("json", PATTERN % "fine")


async def test_a_client_that_leaves_ends_its_trial(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        asking = asyncio.create_task(found.check("json", PATTERN % "hangs"))
        await eventually(found.tried)
        assert found._process is not None
        pid = found._process.pid
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_trial_that_no_processor_takes_up_is_given_up_and_not_held_against_the_schema(
    tmp_path: Any,
) -> None:
    async with trials(tmp_path, wall_s=0.2) as found:
        for _ in range(2):
            with pytest.raises(GrammarTrialsBusy, match="busy"):
                await found.check("json", PATTERN % "hangs")
        assert len(found.tried()) == 2


async def test_a_helper_that_does_not_start_is_said_to_be_missing() -> None:
    found = GrammarTrials(lambda: "{}", helper=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(GrammarTrialsBusy, match="does not start"):
        await found.check("json", PATTERN % "fine")
    await found.close()


async def test_what_is_remembered_is_bounded(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        for at in range(MAX_REMEMBERED + 5):
            await found.check("json", PATTERN % at)
        assert len(found._too_costly) == MAX_REMEMBERED


def vocabulary(size: int) -> list[bytes]:
    """Words, and what stands between them in JSON: such tokens may end one property and begin the next."""
    draw = random.Random(0)
    words = {
        "".join(draw.choices(letters, k=draw.randint(2, 7))).encode()
        for letters in ("etaoinshrdlu", '"{}[]():,;. \\n_')
        for _ in range(size)
    }
    return [bytes([each]) for each in range(256)] + sorted(words, key=lambda _: draw.random())[: size - 256]


@pytest.mark.integration
async def test_xgrammar_itself_is_ended_where_it_takes_too_long() -> None:
    import xgrammar

    info = xgrammar.TokenizerInfo(vocabulary(20_000), vocab_size=20_000)
    found = GrammarTrials(info.serialize_json, terms=TrialTerms(cpu_s=1), helper=HELPER)
    try:
        await found.check("json", json.dumps({"type": "string", "maxLength": 20}))
        # Malformed for xgrammar: the engine is to say so.
        await found.check("json", json.dumps({"type": "string", "pattern": "("}))
        costly = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(4000)}}
        with pytest.raises(GrammarTooCostly):
            await found.check("json", json.dumps(costly))
        await found.check("json", json.dumps({"type": "string", "maxLength": 21}))
    finally:
        await found.close()
