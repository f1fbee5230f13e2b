"""Checks of compressed chats, held against what became of their evidence."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.answers.asking import Reader
from benchmarks.answers.preservation import ARMS, Checked, Checks, measure, report_of, row
from benchmarks.answers.prompts import PROMPTS
from benchmarks.answers.record import Record
from benchmarks.answers.running import Run
from billing.preservation.checks import PreservationCheck
from tests.benchmarks.answers.made import CASE, CONTEXT, streamed

IN_SUITE = replace(CASE, suite="xquad_en", name="xquad_en-0-0")


class Server:
    """Keeps the answer at the largest ratio alone, and has checked a reply when it is looked at a second time."""

    def __init__(self) -> None:
        self.chats: list[Mapping[str, Any]] = []
        self.looks = 0

    def reply(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if request.url.path == "/v1/chat/completions":
            self.chats.append(asked)
            reply = streamed("Marie Curie")
            reply.headers["X-Request-ID"] = str(len(self.chats))
            return reply
        return httpx.Response(200, json={"messages": self._compressed(asked)})

    def _compressed(self, asked: Mapping[str, Any]) -> Any:
        messages = asked["messages"]
        for part in messages[-1]["content"]:
            if part.get("compress"):
                assert part["text"] == CONTEXT and asked["compression"]["scope"] == "marked"
                part["text"] = "Marie Curie." if asked["compression"]["target_ratio"] == 0.25 else "Pierre."
        return messages

    async def read(self) -> list[PreservationCheck]:
        self.looks += 1
        return [self._check(at) for at in range(1, 1 + len(self.chats)) if self.looks > 1 or at > 1]

    def _check(self, number: int) -> PreservationCheck:
        return PreservationCheck(
            event_id=str(number), request_id=str(number), workspace_id="w", project_id="p", model_id="m",
            compression_model_id="c", settled_at=datetime.now(UTC), kinds="text", target_ratio=0.1, keep=None,
            original_tokens=900, sent_tokens=90, scored_tokens=10, agreeing_tokens=10 - number,
            nats_per_token=float(number),
        )  # fmt: skip


async def checked(folder: Path, *, wait_s: float) -> list[Checked]:
    server = Server()
    http = httpx.Client(base_url="http://pith.test", transport=httpx.MockTransport(server.reply))
    run = Run(Reader(http, PROMPTS["twice"]), ARMS, Record.begin(folder / "answers.jsonl", {}), float("inf"))
    [found] = [some async for some in measure([IN_SUITE], run, Checks(server, wait_s))]
    assert all(chat["compression"]["verify"] == 1 for chat in server.chats)
    return list(found)


async def test_a_reply_is_lost_where_what_was_sent_lacks_its_evidence(tmp_path: Path) -> None:
    found = await checked(tmp_path, wait_s=60)
    assert {each.ratio: each.is_lost for each in found} == {
        "0.25": False, "0.1": True, "0.05": True, "0.02": True,
    }  # fmt: skip
    found.sort(key=lambda each: each.nats)
    assert [(each.nats, each.agreement) for each in found] == [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)]


async def test_a_check_that_does_not_come_is_left_out(tmp_path: Path) -> None:
    assert len(await checked(tmp_path, wait_s=0)) == 3


def test_a_row_says_how_well_each_figure_tells_lost_from_kept() -> None:
    found = [
        Checked("s", f"s/{at}", "0.1", is_lost=at % 2 == 1, nats=float(at % 2), agreement=0.5)
        for at in range(10)
    ]
    assert row("s", found) == ["s", "10", "5", "1.00 (1.00 to 1.00)", "0.50 (0.50 to 0.50)", "1.00", "0.00"]
    assert row("s", found[::2])[2:5] == ["0", "", ""] and row("s", found[:8])[2:5] == ["4", "", ""]
    text = report_of(found, {"command": "test"}).markdown()
    assert "| all at 0.1 | 10 | 5 |" in text and "all at 0.05" not in text
