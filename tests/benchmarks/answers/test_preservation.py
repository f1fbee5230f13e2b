"""Checks of compressed chats, held against what became of their evidence."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks.answers.asking import Reader
from benchmarks.answers.preservation import ARMS, CHECKS, Checked, Checks, measure, report_of, row
from benchmarks.answers.prompts import PROMPTS
from benchmarks.answers.record import Record
from benchmarks.answers.running import Run
from tests.benchmarks.answers.made import CASE, CONTEXT, streamed

IN_SUITE = replace(CASE, suite="xquad_en", name="xquad_en-0-0")


class Server:
    """Keeps the answer at the largest ratio alone; a check comes with the second look."""

    def __init__(self) -> None:
        self.chats: list[Mapping[str, Any]] = []
        self.looks = 0

    def reply(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == CHECKS:
            self.looks += 1
            number = int(request.url.params["request_id"].removeprefix("req_"))
            found = (
                [{"nats_per_token": float(number), "agreement": 1 - number / 10}] if self.looks > 1 else []
            )
            return httpx.Response(200, json={"data": found})
        asked = json.loads(request.content)
        if request.url.path == "/v1/chat/completions":
            self.chats.append(asked)
            reply = streamed("Marie Curie")
            reply.headers["X-Request-ID"] = f"req_{len(self.chats)}"
            return reply
        return httpx.Response(200, json={"messages": self._compressed(asked)})

    def _compressed(self, asked: Mapping[str, Any]) -> Any:
        messages = asked["messages"]
        for part in messages[-1]["content"]:
            if part.get("compress"):
                assert part["text"] == CONTEXT and asked["compression"]["scope"] == "marked"
                part["text"] = "Marie Curie." if asked["compression"]["target_ratio"] == 0.25 else "Pierre."
        return messages


def checked(folder: Path, *, wait_s: float) -> list[Checked]:
    server = Server()
    http = httpx.Client(base_url="http://pith.test", transport=httpx.MockTransport(server.reply))
    reader = Reader(http, PROMPTS["twice"])
    run = Run(reader, ARMS, Record.begin(folder / "answers.jsonl", {}), time.monotonic() + 60)
    [found] = measure([IN_SUITE], run, Checks(http, wait_s))
    assert all(chat["compression"]["verify"] == 1 for chat in server.chats)
    return list(found)


def test_a_reply_is_lost_where_what_was_sent_lacks_its_evidence(tmp_path: Path) -> None:
    found = checked(tmp_path, wait_s=60)
    assert {each.ratio: each.is_lost for each in found} == {"0.25": False, "0.1": True, "0.05": True}
    assert sorted(each.nats for each in found) == [1.0, 2.0, 3.0]


def test_a_check_that_does_not_come_is_left_out(tmp_path: Path) -> None:
    assert len(checked(tmp_path, wait_s=0)) == 2


def test_a_row_says_how_well_each_figure_tells_lost_from_kept() -> None:
    found = [
        Checked("s", f"s/{at}", "0.1", is_lost=at % 2 == 1, nats=float(at % 2), agreement=0.5)
        for at in range(8)
    ]
    assert row("s", found) == ["s", "8", "4", "1.00 (1.00 to 1.00)", "0.50 (0.50 to 0.50)", "1.00", "0.00"]
    assert row("s", found[::2])[2:5] == ["0", "", ""]
    text = report_of(found, {"command": "test"}).markdown()
    assert "| all at 0.1 | 8 | 4 |" in text and "all at 0.05" not in text
