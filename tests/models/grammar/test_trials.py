"""Grammars on trial: what is cheap is not tried, what is too costly ends, and payers take turns."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from models.engine import EngineRequest
from models.errors import GrammarRefused, GrammarTooCostly, GrammarTrialsBusy
from models.grammar.trials import (
    CHEAP_CHARS,
    MAX_PAYERS,
    MAX_REMEMBERED,
    GrammarTrials,
    Kind,
    TrialTerms,
    is_cheap,
)
from serve.fairness.replica_turns import MAX_WAITING, FairTrials

# A helper that does as it is told: it dies at once, says nothing until a file is there, or says how it went.
FAKE_HELPER = """
import json, os, sys, time
sys.stdin.readline()
print("ok", flush=True)
for line in sys.stdin:
    spec = json.loads(line)["spec"]
    with open(sys.argv[1], "a") as log:
        log.write(spec + "\\n")
    if "dies" in spec:
        os._exit(1)
    while "hangs" in spec and not os.path.exists(sys.argv[1] + ".go"):
        time.sleep(0.01)
    told = {"malformed": "refused why", "slow": "slow", "large": "large"}
    print(next((told[word] for word in told if word in spec), "ok"), flush=True)
"""
PATTERN = '{"pattern": "%s"}'


def of(project: str, *, background: bool = False) -> EngineRequest:
    return EngineRequest("r", "m", (), 1, False, "ws", project_id=project, background=background)


ONE, OTHER = of("one"), of("other")


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what happens is in another process
            await asyncio.sleep(0.01)


class Trials(GrammarTrials):
    """With a fake helper whose log can be read."""

    def __init__(self, log: Path, **terms: Any) -> None:
        helper = (sys.executable, "-c", FAKE_HELPER, str(log))
        super().__init__(lambda: "{}", FairTrials(), terms=TrialTerms(**terms), helper=helper)
        self.log = log

    def tried(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def go_on(self) -> None:
        """What hangs goes on."""
        Path(f"{self.log}.go").touch()


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
            await found.check("json", PATTERN % "fine", ONE)
            with pytest.raises(GrammarTooCostly, match=r"0\.5 s of a processor to compile.*maxLength"):
                await found.check("json", PATTERN % "slow", ONE)
            with pytest.raises(GrammarTooCostly, match="512 MiB of memory"):
                await found.check("json", PATTERN % "large", ONE)
        await found.check("structural_tag", PATTERN % "fine", ONE)
        assert found.tried() == [PATTERN % each for each in ("fine", "slow", "large", "fine")]


async def test_a_malformed_regex_or_grammar_is_refused_and_a_schema_is_left_to_the_engine(
    tmp_path: Any,
) -> None:
    async with trials(tmp_path) as found:
        kinds: tuple[Kind, ...] = ("regex", "grammar")
        for kind in kinds:
            with pytest.raises(GrammarRefused, match=r"^why$"):
                await found.check(kind, "malformed", ONE)
        await found.check("json", PATTERN % "malformed", ONE)


async def test_what_is_cheap_is_not_tried(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
        await found.check("json", json.dumps(schema), ONE)
        assert found.tried() == []


@pytest.mark.parametrize(
    ("schema", "cheap"),
    [
        ({}, True),
        ({"enum": ["a pattern: x", "format"]}, True),
        ({"additionalProperties": False}, True),
        ({"title": "x" * CHEAP_CHARS}, False),
        ({"properties": {f"p{at}": {} for at in range(40)}}, False),
        *(({key: 1}, False) for key in ("pattern", "format", "minLength", "maxLength", "patternProperties")),
        *(({key: 1}, False) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
        *(({key: 1}, False) for key in ("minProperties", "maxProperties", "propertyNames")),
        *(({key: True}, False) for key in ("additionalProperties", "unevaluatedProperties")),
        ({"additionalProperties": {}}, False),
    ],
)
def test_what_is_cheap(schema: dict[str, Any], cheap: bool) -> None:
    assert is_cheap("json", json.dumps(schema)) == cheap


@pytest.mark.parametrize(
    ("kind", "spec", "cheap"),
    [
        ("grammar", r'root ::= "yes" | "a \"quoted\" | \\ no"', True),
        ("grammar", 'root ::= "yes" | [a-z]', False),
        ("grammar", 'root ::= "yes" | "no"\ns ::= s s', False),
        ("grammar", 'root ::= "yes" "no"', False),
        ("grammar", "root ::= " + " | ".join([f'"{"x" * 50}"'] * 100), False),
        ("regex", "a", False),
    ],
)
def test_only_a_short_choice_of_texts_is_a_cheap_grammar(kind: Kind, spec: str, cheap: bool) -> None:
    assert is_cheap(kind, spec) == cheap


async def test_those_who_ask_for_the_same_share_one_trial_and_one_place(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        await asyncio.gather(*(found.check("json", PATTERN % "fine", ONE) for _ in range(MAX_WAITING * 3)))
        assert len(found.tried()) == 1


async def test_payers_take_turns_and_one_who_floods_is_refused_alone(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        flood = [
            asyncio.create_task(found.check("json", PATTERN % f"hangs{at}", ONE))
            for at in range(MAX_WAITING + 5)
        ]
        await eventually(found.tried)
        with pytest.raises(GrammarTrialsBusy, match="of this project"):
            await found.check("json", PATTERN % "one more", ONE)
        other = asyncio.create_task(found.check("json", PATTERN % "small", OTHER))
        await asyncio.sleep(0)
        found.go_on()
        await other
        # After the one that had begun, and before all others.
        assert found.tried()[1] == PATTERN % "small"
        ended = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(each, GrammarTrialsBusy) for each in ended) == 4


async def test_the_background_waits_for_all_others(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        first = asyncio.create_task(found.check("json", PATTERN % "hangs", ONE))
        await eventually(found.tried)
        batch = [
            asyncio.create_task(found.check("json", PATTERN % f"b{at}", of("other", background=True)))
            for at in range(3)
        ]
        await asyncio.sleep(0)
        later = [asyncio.create_task(found.check("json", PATTERN % f"f{at}", ONE)) for at in range(3)]
        await asyncio.sleep(0)
        found.go_on()
        await asyncio.gather(first, *batch, *later)
        assert [each[13] for each in found.tried()[1:]] == list("fffbbb")


async def test_a_trial_whose_client_has_left_ends_and_the_helper_lives_on(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        asking = asyncio.create_task(found.check("json", PATTERN % "hangs", ONE))
        await eventually(found.tried)
        pid = found._helper._process.pid  # type: ignore[union-attr]
        asking.cancel()
        other = asyncio.create_task(found.check("json", PATTERN % "small", OTHER))
        await asyncio.sleep(0.05)
        assert not asking.done() and not other.done()
        found.go_on()
        await asyncio.gather(asking, other, return_exceptions=True)
        assert asking.cancelled() and found._helper._process.pid == pid  # type: ignore[union-attr]


async def test_a_trial_that_no_processor_takes_up_is_given_up_and_not_held_against_the_schema(
    tmp_path: Any,
) -> None:
    async with trials(tmp_path, wall_s=0.2) as found:
        for _ in range(2):
            with pytest.raises(GrammarTrialsBusy, match="busy"):
                await found.check("json", PATTERN % "hangs", ONE)
        with pytest.raises(GrammarTrialsBusy, match="busy"):
            await found.check("json", PATTERN % "dies", ONE)
        assert len(found.tried()) == 3


async def test_a_helper_that_does_not_start_is_said_to_be_missing() -> None:
    found = GrammarTrials(lambda: "{}", FairTrials(), helper=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(GrammarTrialsBusy, match="does not start"):
        await found.check("json", PATTERN % "fine", ONE)
    await found.close()


async def test_what_is_remembered_is_bounded_and_nobody_is_forgotten_for_another(tmp_path: Any) -> None:
    async with trials(tmp_path) as found:
        await found.check("json", PATTERN % "kept", OTHER)
        for at in range(MAX_REMEMBERED + 5):
            await found.check("json", PATTERN % at, ONE)
        known = found._outcomes
        assert {who: len(outcomes) for who, outcomes in known.items()} == {"one": MAX_REMEMBERED, "other": 1}
        for at in range(MAX_PAYERS + 5):
            found._outcomes_of(f"p{at}")[b""] = "ok"
        assert len(known) == MAX_PAYERS


# What follows compiles with xgrammar itself, against as many tokens as the large open models have.


def named(count: int, schema: Callable[[int], dict[str, Any]], **more: Any) -> dict[str, Any]:
    properties = {f"p{at}": schema(at) for at in range(count)}
    return {"type": "object", "properties": properties, **more}


def hostile(nonce: int) -> dict[str, Any]:
    wanted = named(100, lambda at: {"type": "string", "pattern": ".*" * 20 + f"{nonce}x{at}"})
    return {**wanted, "required": [*wanted["properties"]]}


# At the bounds of `models.options.schemas` or above what is cheap: what each would cost was found by a sweep.
COSTLY: dict[str, dict[str, Any]] = {
    "patterns of .*": hostile(0),
    "nested repetitions": {"type": "string", "pattern": "(.{30}){30}"},
    "a repetition that is dear to read": {"type": "string", "pattern": ".{0,1000}"},
    "optional properties beside others": named(256, lambda _: {}, additionalProperties=True),
    "unevaluated properties": named(200, lambda _: {}, unevaluatedProperties={"type": "array"}),
    "long texts": named(64, lambda at: {"type": "string", "maxLength": 64 + at}),
    "a long text": {"type": "string", "maxLength": 10_000},
    "formats": named(50, lambda _: {"type": "string", "format": "uri-template"}),
    "numbers": named(100, lambda at: {"type": "number", "minimum": -1.2345678e10, "maximum": 1.23e10 + at}),
    "texts of two letters": {"enum": [f"{at:0600b}" for at in range(100)]},
    "many properties": named(1600, lambda _: {"type": "string"}, required=[f"p{at}" for at in range(1600)]),
    "some of many properties": named(120, lambda _: {}, minProperties=40, maxProperties=60),
    "what another library is asked for": {
        "properties": {
            "n": {"type": "integer", "multipleOf": 7},
            "x": {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{at}}}"} for at in range(2, 14)]},
        }
    },
    "arrays in arrays": json.loads('{"type":"array","minItems":99,"items":' * 28 + "{}" + "}" * 28),
}


PALINDROMES = 's ::= [a-z ] s [a-z ] | s s | ""'
TEXTS: dict[str, tuple[Kind, str]] = {
    "a regex of .*": ("regex", ".*" * 400),
    "nested repetitions alone": ("regex", "(.{30}){30}"),
    "alternatives": ("regex", "(" + "|".join(f"[a-z ]*{at}" for at in range(500)) + ")*"),
    "all characters, often": ("regex", r"[\s\S]{0,900}"),
    "palindromes": ("grammar", f"root ::= s\n{PALINDROMES}"),
    "many ways to the same": ("grammar", 'root ::= root root | "a" | "b" | [a-z ]*'),
    "rules in a circle": (
        "grammar",
        f"root ::= {' | '.join(f'r{at}' for at in range(900))}\n"
        + "\n".join(f'r{at} ::= [a-z ]* "{at}" r{(at * 7 + 1) % 900}' for at in range(900)),
    ),
    "deep parentheses": ("grammar", "root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000),
    "doubling rules": (
        "grammar",
        "root ::= r0\n"
        + "\n".join(f"r{at} ::= r{at + 1} r{at + 1}" for at in range(60))
        + "\nr60 ::= [a-z]*",
    ),
    "a long choice": ("grammar", "root ::= " + " | ".join(f'"{at:060b}"' for at in range(1000))),
    "a rule of itself": ("grammar", "root ::= root"),
}


@asynccontextmanager
async def real_trials() -> AsyncIterator[GrammarTrials]:
    from benchmarks.limits.chat import tokenizer

    found = GrammarTrials(tokenizer().serialize_json, FairTrials())
    try:
        await found.check("json", json.dumps({"type": "string", "pattern": "[a-c]"}), ONE)
        yield found
    finally:
        await found.close()


def spent_s(trials: GrammarTrials) -> float:
    """Seconds of a processor that the ended trials have taken."""
    stat = Path(f"/proc/{trials._helper._process.pid}/stat").read_text()  # type: ignore[union-attr]
    user, system = stat.rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
@pytest.mark.integration
async def test_no_grammar_takes_more_than_half_a_second_of_a_processor() -> None:
    schemas: dict[str, tuple[Kind, str]] = {name: ("json", json.dumps(each)) for name, each in COSTLY.items()}
    took, refused = {}, set[str]()
    async with real_trials() as found:
        for name, (kind, spec) in {**schemas, **TEXTS}.items():
            before = spent_s(found)
            try:
                await found.check(kind, spec, ONE)
            except GrammarTooCostly as error:
                refused.add(name)
                assert "of a processor" in str(error) or "of memory" in str(error)
            except GrammarRefused:
                refused.add(name)
            took[name] = spent_s(found) - before
        # Malformed for xgrammar: of a schema the engine is to say so.
        await found.check("json", json.dumps({"type": "string", "pattern": "("}), ONE)
        with pytest.raises(GrammarRefused, match="EBNF"):
            await found.check("grammar", "root ::= (", ONE)
        await found.check("grammar", 'root ::= ("a" | "b")+ [0-9]', ONE)
        await found.check("regex", r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z", ONE)
    # And what forking takes, and the kernel's clock.
    assert max(took.values()) <= 2 * TrialTerms().cpu_s, took
    assert "a rule of itself" in refused
    wanted = {"patterns of .*", "nested repetitions", "optional properties beside others"}
    assert wanted | {"palindromes", "many ways to the same"} <= refused


@pytest.mark.integration
async def test_a_small_schema_waits_for_about_one_trial_of_who_floods_with_dear_ones() -> None:
    async with real_trials() as found:
        flood = [asyncio.create_task(found.check("json", json.dumps(hostile(at)), ONE)) for at in range(20)]
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        passed_by = []
        for at in range(3):
            before = sum(each.done() for each in flood)
            await found.check("json", json.dumps({"type": "string", "pattern": f"[a-c]{at}"}), OTHER)
            passed_by.append(sum(each.done() for each in flood) - before)
        # The trial that was under way, and one that takes its turn beside.
        assert sorted(passed_by)[1] <= 2, passed_by
        for each in flood:
            each.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
