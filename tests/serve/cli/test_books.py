"""The commands that read the books, as an operator meets them, and what they say when asked wrongly."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.price import cost, exact_usd
from billing.spool.spool import Spool
from billing.store.database import open_database
from billing.usage import UsageFigures
from serve.app import catalog_of
from serve.cli.main import main
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts, operator, prices_of
from tests.serve.cli.commands import Done
from tests.serve.served import migrated_file, settings_document

T = TypeVar("T")
NOVEMBER = datetime(2026, 11, 5, 10, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 31, 23, 59, tzinfo=UTC)
NOT_YET = "2999-01"

On = Callable[..., Done]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    path = tmp_path / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path)))
    return path


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], config: Path) -> On:
    """Runs a command in this process on the test's own ledger, with the arguments of a shell."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["pith", *map(str, arguments), "--config", str(config)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            assert ended.code is None or isinstance(ended.code, int)
            code = ended.code or 0
        return Done(code, *capsys.readouterr())

    return run


def on_ledger(config: Path, work: Callable[[Ledger, Caller], Awaitable[T]]) -> T:
    """Run `work` as the server does, for a key of acme/search, which is made first."""

    async def run() -> T:
        settings = load_settings(config)
        opened, accounts = await open_accounts(settings)
        # The machine's clock, which is SQLite's, says what `use` says.
        database = open_database(settings.billing.database_url, clock=MACHINE.seconds)
        spool = Spool(settings.billing.spool_path)
        ledger = Ledger(database, spool)
        try:
            await ledger.publish_prices(prices_of(catalog_of(settings), []), now=OCTOBER)
            await accounts.create_workspace("acme", now=OCTOBER)
            await accounts.create_project("acme", "search", now=OCTOBER)
            _, token = await accounts.create_key("acme/search", "laptop", now=OCTOBER)
            return await work(ledger, await accounts.authenticate(token, now=OCTOBER))
        finally:
            await ledger.close()
            await spool.close()
            await database.close()
            await opened.close()

    return asyncio.run(run())


class Machine:
    """A clock that stands where a test has set it."""

    now = NOVEMBER

    def seconds(self) -> float:
        return self.now.timestamp()


MACHINE = Machine()


async def use(
    ledger: Ledger, caller: Caller, tokens: int, *, model: str = "alpha", now: datetime = NOVEMBER
) -> None:
    MACHINE.now = now
    prices = await ledger.current_prices()
    price = prices.of(model)
    assert price is not None
    due = cost(price, prompt_tokens=tokens, completion_tokens=0, minimum=True)
    hold = await ledger.hold(
        caller,
        model_id=model,
        pricing_version=prices.version,
        amount_nano_usd=due.nano_usd,
        request_id="r",
        now=now,
    )
    figures = UsageFigures(prompt_tokens=tokens, completion_tokens=0, cached_tokens=0, stream=False)
    await ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=now)


@pytest.fixture
def used(config: Path) -> None:
    """acme used 5 dollars in October, and 12.3456 in November on two models."""

    async def work(ledger: Ledger, caller: Caller) -> None:
        await use(ledger, caller, 50_000, now=OCTOBER)
        await use(ledger, caller, 100_000)
        await use(ledger, caller, 23_456, model="beta")

    on_ledger(config, work)


def edit(config: Path, statement: str) -> None:
    with sqlite3.connect(config.parent / "pith.db") as connection:
        connection.execute(statement)
    connection.close()


def cut(on: On) -> dict[str, Any]:
    (made,) = on("collections", "cut", "acme", "--json").json()
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("nano", "said"),
    [(0, "0.00"), (1, "0.000000001"), (10**9, "1.00"), (12_300_000_000, "12.30"), (-1, "-0.000000001")],
)
def test_an_amount_is_said_exactly(nano: int, said: str) -> None:
    assert exact_usd(nano) == said


def test_a_collection_from_the_cut_to_the_payment(on: On, used: None) -> None:
    assert on("collections", "list").out == "none\n"
    assert on("collections", "list", "--json").json() == []
    made = cut(on)
    assert (made["workspace"], made["cents"], made["usd"], made["state"]) == ("acme", 1734, "17.34", "open")
    head, line = on("collections", "list").out.splitlines()
    assert head.split()[:4] == ["id", "workspace", "usd", "state"]
    assert line.split()[:4] == [made["id"], "acme", "17.34", "open"]

    (marked,) = on("collections", "mark", made["id"], "failed", "--note", "card refused", "--json").json()
    assert (marked["state"], marked["note"], marked["closed_at"]) == ("failed", "card refused", None)
    (opened,) = on("collections", "mark", made["id"], "open", "--json").json()
    assert (opened["state"], opened["times_opened"]) == ("open", 2)
    (paid,) = on("collections", "mark", made["id"], "paid", "--reference", "pi_1", "--json").json()
    assert (paid["state"], paid["reference"], paid["idempotency_key"]) == (
        "paid",
        "pi_1",
        made["idempotency_key"],
    )
    assert paid["closed_at"] is not None

    assert [row["id"] for row in on("collections", "list", "--state", "paid", "--json").json()] == [
        made["id"]
    ]
    assert on("collections", "list", "--state", "open").out == "none\n"
    assert len(on("collections", "list", "--workspace", "acme", "--json").json()) == 1
    assert on("collections", "cut", "acme").out == "none\n"
    (workspace,) = on("workspace", "list", "--json").json()
    assert (workspace["posted_usd"], workspace["collected_usd"]) == ("17.3456", "17.34")
    assert on("reconcile").code == 0


def test_a_move_that_is_illegal_names_both_states(on: On, used: None) -> None:
    made = cut(on)
    on("collections", "mark", made["id"], "void", "--note", "a gift")
    for wanted in ("paid", "open", "failed", "void"):
        done = on("collections", "mark", made["id"], wanted)
        assert done.code == 1
        assert (
            done.complaint() == f"collection {made['id']} is void and cannot become {wanted}: void is final"
        )
    again = cut(on)
    assert again["cents"] == made["cents"] and again["idempotency_key"] != made["idempotency_key"]
    done = on("collections", "mark", again["id"], "open")
    assert done.complaint().endswith("is open and cannot become open: it may become paid or failed or void")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("collections", "mark", "col_none", "paid"), 1, "no collection has the id 'col_none'"),
        (("collections", "mark", "", "paid"), 1, "no collection has the id ''"),
        (
            ("collections", "mark", "col_none", "paid", "--reference", "x" * 257),
            1,
            "reference: must be 1 to 256",
        ),
        (
            ("collections", "mark", "col_none", "paid", "--note", "a\nb"),
            1,
            "note: must be 1 to 1024 printable",
        ),
        (("collections", "list", "--workspace", "nobody"), 1, "no workspace has the id or name 'nobody'"),
        (("collections", "cut", "nobody"), 1, "no workspace has the id or name 'nobody'"),
        (("collections", "export", "--since", "soon"), 2, "--since: 'soon' is not a day or a moment"),
        (
            ("collections", "export", "--until", "2026-02-30"),
            2,
            "--until: '2026-02-30' is not a day or a moment",
        ),
        (
            ("usage", "--since", "2026-11-02", "--until", "2026-11-02"),
            2,
            "--until: '2026-11-02' is not after",
        ),
        (("usage", "--since", "0001-01-01T00:00+23:00"), 2, "--since: "),
        (
            ("usage", "--by", "colour"),
            2,
            "--by: 'colour' is not one of workspace, project, key, model, day, month",
        ),
        (("usage", "--by", "day,day"), 2, "--by: day is given twice"),
        (("usage", "--by", ""), 2, "--by: '' is not one of"),
        (("usage", "--json", "--csv"), 2, "--csv and --json cannot be used together"),
        (("usage", "--workspace", "nobody"), 1, "no workspace has the id or name 'nobody'"),
        (("statement", "nobody", "2026-11"), 1, "no workspace has the id or name 'nobody'"),
        (("statement", "acme", "2026-13"), 2, "MONTH: '2026-13' is not a month, such as 2026-11"),
        (("statement", "acme", "11-2026"), 2, "MONTH: '11-2026' is not a month"),
        (("statement", "acme", NOT_YET), 2, f"MONTH: {NOT_YET} has not begun"),
        (("audit", "--workspace", "nobody"), 1, "no workspace has the id or name 'nobody'"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(on: On, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = on(*arguments)
    assert done.code == code
    assert words in done.complaint()


@pytest.mark.parametrize(
    "arguments",
    [
        ("collections", "mark", "col_x", "payed"),
        ("collections", "list", "--state", "lost"),
        ("collections", "export", "--format", "xml"),
        ("collections", "mark", "col_x"),
        ("audit", "--limit", "0"),
    ],
)
def test_a_choice_that_is_none_is_exit_code_2(on: On, arguments: tuple[str, ...]) -> None:
    done = on(*arguments)
    assert done.code == 2 and "Usage" in done.err and "Traceback" not in done.err


def test_an_export_is_csv_or_json_lines_of_a_period(on: On, used: None) -> None:
    made = cut(on)
    on("collections", "mark", made["id"], "failed", "--note", 'said "no", twice')
    (row,) = csv.DictReader(io.StringIO(on("collections", "export").out))
    assert (row["id"], row["cents"], row["usd"], row["note"]) == (
        made["id"],
        "1734",
        "17.34",
        'said "no", twice',
    )
    assert (row["reference"], row["idempotency_key"]) == ("", made["idempotency_key"])
    (line,) = on("collections", "export", "--format", "jsonl").out.splitlines()
    assert json.loads(line)["reference"] is None
    today = datetime.fromisoformat(made["created_at"]).date().isoformat()
    assert on("collections", "export", "--format", "jsonl", "--until", today).out == ""
    assert on("collections", "export", "--until", today).out.splitlines() == [",".join(row)]
    assert len(on("collections", "export", "--since", today).out.splitlines()) == 2


def test_usage_is_exact_whatever_it_is_added_up_by(on: On, used: None) -> None:
    (row,) = on("usage", "--json").json()
    assert (row["workspace"], row["requests"], row["prompt_tokens"], row["cost_usd"]) == (
        "acme",
        3,
        173_456,
        "17.3456",
    )
    by_model = on("usage", "--by", "model,month", "--json").json()
    assert [(line["model"], line["month"], line["cost_usd"]) for line in by_model] == [
        ("alpha", "2026-10", "5.00"),
        ("alpha", "2026-11", "10.00"),
        ("beta", "2026-11", "2.3456"),
    ]
    november = ("--since", "2026-11-01", "--until", "2026-12-01")
    rows = list(
        csv.DictReader(io.StringIO(on("usage", "--by", "day", "--by", "key", *november, "--csv").out))
    )
    assert [(line["day"], line["key"], line["cost_usd"]) for line in rows] == [
        ("2026-11-05", "laptop", "12.3456")
    ]
    *_, total = on("usage", "--by", "project", "--by", "model").out.splitlines()
    assert total.split() == ["total", "3", "173456", "0", "0", "17.3456", "0.00"]
    assert on("usage", "--since", "2027-01-01").out == "none\n"
    assert on("usage", "--since", "2027-01-01", "--csv").out.startswith("workspace,workspace_id,requests,")


def test_a_statement_of_a_month(on: On, used: None) -> None:
    fields = on("statement", "acme", "2026-11", "--json").json()
    assert fields["opening"] == {"owed_usd": "5.00", "in_collections_usd": "0.00", "uncollected_usd": "5.00"}
    assert [
        (line["project"], line["model"], line["requests"], line["cost_usd"]) for line in fields["usage"]
    ] == [
        ("search", "alpha", 1, "10.00"),
        ("search", "beta", 1, "2.3456"),
    ]
    assert (fields["used_usd"], fields["paid_usd"]) == ("12.3456", "0.00")
    assert fields["closing"]["owed_usd"] == "17.3456"
    page = on("statement", "acme", "2026-11").out
    for words in (
        "Statement of acme (ws_",
        "Opening balance  5.00 USD owed",
        "beta",
        "Closing balance  17.3456 USD",
    ):
        assert words in page


def test_a_statement_of_this_month_says_that_it_goes_on(on: On, used: None) -> None:
    made, this_month = cut(on), datetime.now(UTC).strftime("%Y-%m")
    on("collections", "mark", made["id"], "paid", "--reference", "pi_1")
    page = on("statement", "acme", this_month).out
    assert "so far: the month has not ended" in page and "pi_1" in page and made["id"] in page
    assert "Paid             17.34 USD" in page and "Closing balance  0.0056 USD" in page


def test_books_in_order_are_clean(on: On, used: None) -> None:
    done = on("reconcile")
    assert done.code == 0
    first, last = done.out.splitlines()
    assert first == (
        "3 events of 1 workspaces: posted 17.3456 USD = collected 0.00 + uncollected 17.3456; held 0.00 USD"
    )
    assert last == "clean: everything adds up"
    fields = on("reconcile", "--json").json()
    assert (fields["clean"], fields["events"], fields["differences"]) == (True, 3, [])


def test_a_difference_is_printed_and_exit_code_1_until_it_is_rebuilt(
    on: On, used: None, config: Path
) -> None:
    edit(config, "UPDATE workspaces SET posted_nano_usd = posted_nano_usd + 2500000001")
    done = on("reconcile")
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("difference: ")]
    assert line.startswith("difference: posted of ws_") and line.endswith(
        "is 19.845600001 USD in its row and 17.3456 USD from the rows below it: 2.500000001 USD"
    )
    assert json.loads(on("reconcile", "--json").out)["differences"][0]["difference_usd"] == "2.500000001"
    done = on("reconcile", "--rebuild")
    assert done.code == 0 and done.out.startswith("rebuilt: posted of ws_")
    assert on("reconcile").code == 0
    assert on("audit", "--json").json()[-1]["action"] == "workspace.rebuild"


def test_a_rebuild_that_is_refused_is_one_line(on: On, used: None, config: Path) -> None:
    edit(config, "UPDATE workspaces SET posted_nano_usd = posted_nano_usd + 2500000000")
    cut(on)
    done = on("reconcile", "--rebuild")
    assert done.code == 1
    assert "its collections are $19.84 and its events only $17.3456" in done.complaint()


def test_a_charge_that_is_not_the_price_is_found(on: On, config: Path) -> None:
    async def overcharge(ledger: Ledger, caller: Caller) -> None:
        prices = await ledger.current_prices()
        hold = await ledger.hold(
            caller, model_id="alpha", pricing_version=1, amount_nano_usd=10**9, request_id="r", now=NOVEMBER
        )
        price = prices.of("alpha")
        assert price is not None
        wrong = cost(price, prompt_tokens=999, completion_tokens=0, minimum=True)
        figures = UsageFigures(prompt_tokens=99, completion_tokens=0, cached_tokens=0, stream=False)
        await ledger.settle(hold, figures=figures, cost=wrong, outcome="completed", now=NOVEMBER)

    on_ledger(config, overcharge)
    done = on("reconcile")
    assert done.code == 1
    assert "was charged 0.0999 USD, and its tokens cost 0.0099 USD" in done.out and "NOT clean" in done.out


def test_usage_that_waits_in_the_spool_is_mentioned(on: On, used: None, config: Path) -> None:
    async def spool_one(ledger: Ledger, caller: Caller) -> None:
        prices = await ledger.current_prices()
        settings = load_settings(config)
        away, spool = (
            open_database(f"sqlite:///{config.parent / 'none.db'}"),
            Spool(settings.billing.spool_path),
        )
        hold = await ledger.hold(
            caller,
            model_id="alpha",
            pricing_version=prices.version,
            amount_nano_usd=1,
            request_id="r",
            now=NOVEMBER,
        )
        price = prices.of("alpha")
        assert price is not None
        due = cost(price, prompt_tokens=1, completion_tokens=0, minimum=True)
        figures = UsageFigures(prompt_tokens=1, completion_tokens=0, cached_tokens=0, stream=False)
        settled = await Ledger(away, spool).settle(
            hold, figures=figures, cost=due, outcome="completed", now=NOVEMBER
        )
        assert settled.status == "degraded"
        await spool.close()
        await away.close()

    edit(config, "UPDATE workspaces SET name = 'first'")
    on_ledger(config, spool_one)
    done = on("reconcile")
    assert done.code == 0
    assert "spool: 1 events wait here and are not in the ledger yet" in done.out


def test_who_did_what_is_on_record(on: On) -> None:
    assert on("audit").out == "none\n"
    on("workspace", "create", "acme")
    on("workspace", "set", "acme", "--monthly-limit-usd", 5)
    created, changed = on("audit", "--workspace", "acme", "--json").json()
    assert (created["action"], created["actor"]) == ("workspace.create", operator())
    assert changed["details"] == {"monthly_limit_nano_usd": [None, 5 * 10**9]}
    assert operator().startswith("cli:")
    head, *lines = on("audit", "--limit", 1).out.splitlines()
    assert head.split() == ["at", "actor", "action", "workspace_id", "subject", "details"]
    assert len(lines) == 1 and "workspace.change" in lines[0]
