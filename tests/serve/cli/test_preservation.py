"""What compression changed in replies, as an operator is told of it."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path

import pytest

from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.preservation.checks import PreservationStore
from billing.store.database import open_database
from serve.config.settings import load_settings
from tests.billing.preservation.test_checks import check_of
from tests.serve.cli.test_books import NOVEMBER, On, on_ledger
from tests.serve.cli.test_books import config as config
from tests.serve.cli.test_books import on as on


@pytest.fixture
def checked(config: Path) -> None:
    """acme/search had 40 chats checked in November, of two kinds."""

    async def work(ledger: Ledger, caller: Caller) -> None:
        database = open_database(load_settings(config).billing.database_url)
        store = PreservationStore(database)
        for number in range(40):
            moment = NOVEMBER + timedelta(minutes=number)
            kinds = "tool_json" if number % 4 == 0 else "text"
            await store.record(check_of(caller, moment, kinds=kinds, model_id="alpha", nats_per_token=0.125))
        await database.close()

    on_ledger(config, work)


def test_each_kind_of_block_has_its_means_with_their_intervals(on: On, checked: None) -> None:
    text, tool = on("usage", "--preservation", "--json").json()
    assert (text["project"], text["model"], text["kind"]) == ("search", "alpha", "text")
    assert (text["checked_chats"], tool["checked_chats"]) == (30, 10)
    assert text["nats_low"] <= text["nats_per_token"] == 0.125 <= text["nats_high"]
    assert text["agreement_low"] <= text["agreement"] == 0.95 <= text["agreement_high"]
    # Fewer chats say less.
    assert tool["nats_high"] > text["nats_high"]
    lines = list(csv.DictReader(io.StringIO(on("usage", "--preservation", "--csv").out)))
    assert [line["kind"] for line in lines] == ["text", "tool_json"] and lines[0]["clipped_chats"] == "0"
    (whole,) = on("usage", "--preservation", "--by", "workspace", "--json").json()
    assert (whole["workspace"], whole["checked_chats"]) == ("acme", 40)
    page = on("usage", "--preservation").out
    assert "0.125 (" in page and "95.0% (" in page


def test_a_statement_says_what_it_cannot_see(on: On, checked: None) -> None:
    page = on("statement", "acme", "2026-11").out
    assert "Replies scored again under the whole prompt" in page and "0.125 (" in page
    assert "harm in later turns is not seen" in page and "safe" not in page
    stated = on("statement", "acme", "2026-11", "--json").json()["preservation"]
    assert stated == on("usage", "--preservation", "--json").json()
    assert "scored again" not in on("statement", "acme", "2026-10").out


def test_a_report_is_asked_for_alone_and_by_what_it_has(on: On, checked: None) -> None:
    assert on("usage", "--preservation", "--since", "2027-01-01").out == "none\n"
    done = on("usage", "--preservation", "--by", "day")
    assert done.code == 2 and "'day' is not one of workspace, project, model, kind" in done.err
    both = on("usage", "--preservation", "--savings")
    assert both.code == 2 and "cannot be used together" in both.err
