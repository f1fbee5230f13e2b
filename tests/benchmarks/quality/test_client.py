"""The client against a fake server: replies, waiting, refusals; and the report from what it got."""

from __future__ import annotations

import json

import httpx
import pytest

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.datasets import Records
from benchmarks.evaluation.suites import plain
from benchmarks.evaluation.suites.families import family_of
from benchmarks.quality.client import Refused, Target, compress, told_by
from benchmarks.quality.options import also_chosen, arguments, chosen, tasks_of
from benchmarks.quality.scoring import Told

CASE = next(plain.record_cases([Records((("a", "1"), ("b", "2")), "b", "2")], "kv_75"))
TARGET = Target("http://server", "pith_k", "lexical", 1)
RECEIPT = {"compression_ratio": 0.1, "latency_ms": 2.0, "risk_flags": []}


def server(*answers: httpx.Response) -> tuple[httpx.AsyncClient, list[httpx.Request]]:
    """A fake that gives these answers in turn."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answers[len(seen) - 1]

    return httpx.AsyncClient(base_url="http://server", transport=httpx.MockTransport(answer)), seen


async def test_a_case_is_sent_as_the_contract_says() -> None:
    http, seen = server(httpx.Response(200, json={"output": "{}", "receipt": RECEIPT}))
    async with http:
        reply = await compress(http, TARGET, Task(CASE, 0.25))
    assert (reply.output, reply.receipt) == ("{}", RECEIPT)
    body = json.loads(seen[0].content)
    assert body["model"] == "lexical"
    assert body["input"] == CASE.context
    assert body["compression"] == {"target_ratio": 0.25, "preserve_order": True}


async def test_a_busy_server_is_asked_again_and_a_refusal_names_the_case() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "0"})
    http, seen = server(
        busy, httpx.Response(503, headers={"Retry-After": "0"}), httpx.Response(422, text="too big")
    )
    async with http:
        with pytest.raises(Refused, match=r"kv_75-0 at 0\.25: 422 too big"):
            await compress(http, TARGET, Task(CASE, 0.25))
    assert len(seen) == 3


def test_cases_are_chosen_by_suite_and_an_unknown_suite_is_named() -> None:
    makers = {"kv_75": lambda: iter([CASE])}
    assert chosen(makers, arguments(["--suites", "kv_75", "--all-rows"])) == [CASE]
    with pytest.raises(SystemExit, match="nq: the folder has kv_75"):
        chosen(makers, arguments(["--suites", "nq"]))


def test_a_second_model_is_asked_for_few_cases_of_its_suites() -> None:
    rows = [Records((("a", "1"), ("b", "2")), "b", str(number)) for number in range(20)]
    cases = list(plain.record_cases(rows, "kv_75"))
    asked = arguments(["--also", "slow", "--also-limit", "3", "--also-suites", "kv_75,nq"])
    few = also_chosen(cases, asked)
    assert len(few) == 3 and set(few) < set(cases)
    assert few == also_chosen(cases, asked)
    assert also_chosen(cases, arguments(["--also", "slow"])) == []


def test_our_own_rows_are_those_held_out_unless_all_are_asked_for_and_other_folders_are_whole() -> None:
    assert arguments([]).held_out
    assert not arguments(["--all-rows"]).held_out
    assert not arguments(["--data", "elsewhere"]).held_out
    assert arguments(["--data", "elsewhere", "--held-out"]).held_out


def test_a_promise_is_asked_for_beside_the_ratios_or_alone() -> None:
    both = list(tasks_of([CASE], arguments(["--keep", "0.95"])))
    assert [(task.ratio, task.keep) for task in both] == [
        (0.5, None),
        (0.25, None),
        (0.1, None),
        (None, 0.95),
    ]
    assert [task.size for task in tasks_of([CASE], arguments(["--keep", "0.95", "--no-ratios"]))] == [
        "keep 0.95"
    ]
    with pytest.raises(SystemExit):
        arguments(["--no-ratios"])


async def test_a_promise_is_sent_in_place_of_a_ratio() -> None:
    receipt = RECEIPT | {
        "risk_flags": [{"code": "low_relevance", "severity": "warning", "count": 1, "examples": []}],
        "evidence_kept_probability": 0.9,
    }
    http, seen = server(httpx.Response(200, json={"output": "{}", "receipt": receipt}))
    async with http:
        reply = await compress(http, TARGET, Task(CASE, keep=0.95))
    assert json.loads(seen[0].content)["compression"] == {"keep": 0.95, "preserve_order": True}
    told = told_by(reply.receipt)
    assert told == Told(0.1, 2.0, {"low_relevance": "warning"}, 0.9)
    assert told.warns and not told_by(RECEIPT).warns


def test_every_suite_has_its_ratios() -> None:
    suites = ("nq", "qmsum_val", "xquad_hi", "kv_140", "hotpot_x_bare", "tau_x_json")
    assert all(family_of(suite).ratios for suite in suites)
