"""The commands that read the books, as an operator meets them, and what they say when asked wrongly."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from billing.adjustments.adjustment import Adjustment, Wanted
from billing.adjustments.adjustments import Adjustments
from billing.caller import Caller
from billing.errors import LedgerUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice, cost, exact_usd
from billing.store.database import open_database
from billing.usage import Saving, UsageFigures, Used
from serve.catalog.offered import catalog_of
from serve.cli.main import main
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts, operator, prices_of
from tests.migrated import migrated_file
from tests.serve.cli.commands import Done
from tests.serve.served import settings_document

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
            _, token = await accounts.keys.create("acme/search", "laptop", now=OCTOBER)
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
            "--by: 'colour' is not one of workspace, project, key, model, route, day, month",
        ),
        (("usage", "--by", "day,day"), 2, "--by: day is given twice"),
        (("usage", "--by", ""), 2, "--by: '' is not one of"),
        (("usage", "--by", "person,key"), 1, "by workspace, project, day and month besides, not by key"),
        (("usage", "--savings", "--project", "acme/search"), 2, "--project goes with usage alone"),
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


@pytest.fixture
def labelled(config: Path) -> None:
    """Two persons and two tags of acme, in November."""

    async def work(ledger: Ledger, caller: Caller) -> None:
        await use(ledger, replace(caller, person="psn_a", tags=("night",)), 10_000)
        await use(ledger, replace(caller, person="psn_b", tags=("day", "night")), 30_000)

    on_ledger(config, work)


def test_usage_by_person_and_by_tag_begins_with_the_most_expensive(on: On, labelled: None) -> None:
    by_person = on("usage", "--by", "person", "--json").json()
    assert [(row["person"], row["cost_usd"]) for row in by_person] == [("psn_b", "3.00"), ("psn_a", "1.00")]
    of_project = ("--project", "acme/search", "--since", "2026-11-05T00:30+00:00")
    rows = csv.DictReader(io.StringIO(on("usage", "--by", "tag,day", *of_project, "--csv").out))
    assert [(row["tag"], row["day"], row["requests"], row["cost_usd"]) for row in rows] == [
        ("night", "2026-11-05", "2", "4.00"),
        ("day", "2026-11-05", "1", "3.00"),
    ]
    assert on("usage", "--by", "person").out.splitlines()[-1].split()[:2] == ["total", "2"]

    fields = on("statement", "acme", "2026-11", "--json").json()
    for kind, due in (("person", ["psn_b", "psn_a"]), ("tag", ["night", "day"])):
        assert [(row["project"], row[kind]) for row in fields[f"by_{kind}"]] == [
            ("search", one) for one in due
        ]
    assert fields["used_usd"] == "4.00"
    page = on("statement", "acme", "2026-11").out
    assert "Usage by person, the most expensive first" in page and "psn_b" in page
    assert "Usage by" not in on("statement", "acme", "2026-10").out

    exported = [json.loads(line) for line in on("export", "events").out.splitlines()]
    assert {(row["person"], row["tags"]) for row in exported} == {("psn_a", "night"), ("psn_b", "day,night")}


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


@pytest.mark.usefixtures("one_day")
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


def compressed(config: Path, *, conversations: int = 0, held_out: int = 0) -> None:
    """One chat whose prompt was compressed for money, and conversations that take part in a comparison."""

    async def run(ledger: Ledger, caller: Caller) -> None:
        MACHINE.now = NOVEMBER
        listed = (await ledger.current_prices()).prices
        compressor = ModelPrice("squeezer", 10_000_000, 0, 0)
        version = await ledger.publish_prices([*listed, compressor], now=NOVEMBER)

        async def used(model: str, price: ModelPrice, tokens: int, saving: Saving | None = None) -> Used:
            hold = await ledger.hold(
                caller,
                model_id=model,
                pricing_version=version,
                amount_nano_usd=10**12,
                request_id="r",
                now=NOVEMBER,
            )
            due = cost(price, prompt_tokens=tokens, completion_tokens=0, minimum=True)
            return Used(hold, UsageFigures(tokens, 0, 0, stream=False, saving=saving), due)

        price = next(one for one in listed if one.model_id == "alpha")
        # 100,000 nano-dollars a token: of 30,000 tokens 12,000 were sent.
        saved = Saving("applied", 30_000, 0, 18_000 * 100_000)
        pair = [await used("alpha", price, 12_000, saved), await used("squeezer", compressor, 30_000)]
        await ledger.settle_all(pair, outcome="completed", now=NOVEMBER)
        for number in range(conversations + held_out):
            original, whole = 20_000 + 100 * (number % 7), number >= conversations
            sent = original if whole else original // 2
            saving = Saving(
                "holdout" if whole else "applied",
                original,
                0,
                (original - sent) * 100_000,
                conversation=f"{number:032x}",
            )
            one = await used("alpha", price, sent, saving)
            await ledger.settle_all([one], outcome="completed", now=NOVEMBER)

    on_ledger(config, run)


def test_what_compression_saved_is_shown_gross_and_net(on: On, config: Path) -> None:
    compressed(config)
    alpha, squeezer = on("usage", "--by", "project,model", "--json").json()
    saved = ("tokens_saved", "saved_usd", "compression_usd", "net_saved_usd")
    assert [alpha[name] for name in saved] == [18_000, "1.80", "0.30", "1.50"]
    assert [squeezer[name] for name in saved] == [0, "0.00", "0.00", "0.00"]
    assert (alpha["cost_usd"], squeezer["cost_usd"]) == ("1.20", "0.30")
    (row,) = csv.DictReader(io.StringIO(on("usage", "--csv").out))
    assert [row[name] for name in saved] == ["18000", "1.80", "0.30", "1.50"] and row["cost_usd"] == "1.50"
    head, *_, total = on("usage", "--by", "model").out.splitlines()
    assert head.split()[-4:] == list(saved) and total.split()[-4:] == ["18000", "1.80", "0.30", "1.50"]

    fields = on("statement", "acme", "2026-11", "--json").json()
    assert [fields[name] for name in saved] == [18_000, "1.80", "0.30", "1.50"]
    assert fields["usage"][0]["net_saved_usd"] == "1.50" and fields["used_usd"] == "1.50"
    page = on("statement", "acme", "2026-11").out
    assert (
        "Saved            1.80 USD by compressing prompts (18000 tokens); 0.30 USD of compression leave 1.50"
        in page
    )
    assert "Measured" not in page and on("reconcile").code == 0


def test_without_compression_only_programs_see_that_nothing_was_saved(on: On, used: None) -> None:
    assert all("saved" not in on(*command).out for command in (("usage",), ("statement", "acme", "2026-11")))
    (row,) = on("usage", "--json").json()
    assert (row["tokens_saved"], row["saved_usd"], row["net_saved_usd"]) == (0, "0.00", "0.00")
    assert (
        on("usage", "--csv")
        .out.splitlines()[0]
        .endswith("tokens_saved,saved_usd,compression_usd,net_saved_usd")
    )
    assert on("statement", "acme", "2026-11", "--json").json()["measured_savings"] == []


def test_a_measured_saving_has_its_interval_and_both_sides(on: On, config: Path) -> None:
    compressed(config, conversations=90, held_out=60)
    (row,) = on("usage", "--savings", "--json").json()
    assert (row["project"], row["model"]) == ("search", "alpha")
    assert (row["conversations"], row["held_out_conversations"]) == (90, 60)
    assert (row["requests"], row["held_out_requests"], row["mixed_conversations"]) == (90, 60, 0)
    assert row["measured_low"] <= row["measured_saving"] == 0.5 <= row["measured_high"]
    (line,) = csv.DictReader(io.StringIO(on("usage", "--savings", "--csv").out))
    assert line["measured_saving"] == "0.5" and line["held_out_conversations"] == "60"
    (whole,) = on("usage", "--savings", "--by", "workspace", "--json").json()
    assert (whole["workspace"], whole["measured_saving"]) == ("acme", 0.5)
    assert "50.0% (50.0% to 50.0%)" in on("usage", "--savings").out
    page = on("statement", "acme", "2026-11").out
    assert "Measured saving of compression, against conversations that were held out" in page
    assert "50.0% (50.0% to 50.0%)" in page
    assert on("statement", "acme", "2026-11", "--json").json()["measured_savings"] == [row | {}]


def test_too_few_conversations_say_nothing(on: On, config: Path) -> None:
    compressed(config, conversations=90, held_out=3)
    (row,) = on("usage", "--savings", "--json").json()
    assert row["measured_saving"] is row["measured_low"] is row["measured_high"] is None
    assert row["held_out_conversations"] == 3
    for page in (on("usage", "--savings").out, on("statement", "acme", "2026-11").out):
        assert "too few to say: under 50 conversations on a side" in page
    assert on("usage", "--savings", "--since", "2027-01-01").out == "none\n"
    done = on("usage", "--savings", "--by", "key")
    assert done.code == 2 and "'key' is not one of workspace, project, model" in done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "saved_nano_usd = 0",
            "says that it saved 0.00 USD, and saved 1.80 USD by the price list that it names",
        ),
        (
            "compression_nano_usd = 0",
            "says that its compression cost 0.00 USD, and the event of that has 0.30 USD",
        ),
        ("paired_with = 'gone'", "names an event of the same request that is not there, or does not name it"),
    ],
)
def test_a_saving_that_is_not_so_is_found(on: On, config: Path, change: str, said: str) -> None:
    compressed(config)
    edit(config, "DROP TRIGGER usage_events_no_update")
    edit(config, f"UPDATE usage_events SET {change} WHERE compression IS NOT NULL")
    done = on("reconcile")
    assert done.code == 1 and said in done.out and "NOT clean" in done.out
    fields = json.loads(on("reconcile", "--json").out)
    assert {wrong["figure"] for one in fields["mispriced_events"] for wrong in one["wrong"]} <= {
        "saved",
        "compression",
    }


def an_event(config: Path) -> str:
    with sqlite3.connect(config.parent / "pith.db") as connection:
        (event,) = connection.execute("SELECT min(event_id) FROM usage_events").fetchone()
    connection.close()
    return str(event)


@pytest.mark.usefixtures("one_day")
def test_credits_adjustments_and_refunds_are_in_every_book(on: On, used: None, config: Path) -> None:
    event, this_month = an_event(config), datetime.now(UTC).strftime("%Y-%m")
    (refund,) = on(
        "adjustment", "refund", event, "--usd", "1.5", "--reason", "cut off", "--key", "k", "--json"
    ).json()
    assert (refund["usd"], refund["event_id"], refund["idempotency_key"]) == ("-1.50", event, "k")
    again = on("adjustment", "refund", event, "--usd", "1.5", "--reason", "cut off", "--key", "k", "--json")
    assert again.json() == [refund]
    assert "-2.25" in on("adjustment", "credit", "acme", "--usd", "2.25", "--reason", "goodwill").out
    assert " 0.10" in on("adjustment", "adjust", "acme", "--usd", "0.1", "--reason", "a fee").out
    assert [one["usd"] for one in on("adjustment", "list", "--json").json()] == ["-1.50", "-2.25", "0.10"]
    page = on("statement", "acme", this_month).out
    assert "Adjusted         -3.65 USD" in page and "goodwill" in page
    fields = on("statement", "acme", this_month, "--json").json()
    assert (fields["adjusted_usd"], fields["closing"]["owed_usd"]) == ("-3.65", "13.6956")
    done = on("reconcile").out
    assert "uncollected 13.6956 + credited 3.75 (3 adjustments); " in done and "clean" in done
    actions = [one["action"] for one in on("audit", "--workspace", "acme", "--json").json()]
    assert actions[-3:] == ["adjustment.add"] * 3


def test_a_request_is_refunded_by_the_id_that_its_customer_has(on: On, used: None, config: Path) -> None:
    event = an_event(config)
    edit(config, "DROP TRIGGER usage_events_no_update")
    edit(config, f"UPDATE usage_events SET request_id = 'river-1' WHERE event_id = '{event}'")
    words = ("adjustment", "refund", "--workspace", "acme", "--since", "2026-10-01", "--reason", "cut off")
    (made,) = on(*words, "--request-id", "river-1", "--json").json()
    assert (made["event_id"], made["kind"]) == (event, "refund")
    assert "no usage event of the workspace since 2026-10-01" in on(*words, "--request-id", "x").complaint()
    several = on(*words, "--request-id", "r").complaint()
    assert "several usage events have the request id 'r'; refund each by its own id: " in several


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("credit", "acme", "--usd", "-1"), "must be above 0"),
        (("credit", "acme", "--usd", "0"), "--usd"),
        (("credit", "acme", "--usd", "1e-10"), "--usd"),
        (("credit", "acme", "--usd", "many"), "--usd"),
        (("credit", "nobody", "--usd", "1"), "no workspace"),
        (("adjust", "acme", "--usd", "1e300"), "--usd"),
        (("refund", "nothing"), "no usage event"),
        (("refund",), "name the usage event, or the request"),
        (
            ("refund", "EVENT", "--request-id", "r", "--workspace", "acme"),
            "name the usage event, or the request",
        ),
        (("refund", "--request-id", "r"), "name the usage event, or the request"),
        (("refund", "EVENT", "--workspace", "acme"), "name the usage event, or the request"),
        (("refund", "--request-id", "r", "--workspace", "nobody"), "no workspace"),
        (("refund", "EVENT", "--usd", "5.01"), "of which 5.00 can still be refunded"),
    ],
)
def test_an_adjustment_that_cannot_be_made_is_one_line(
    on: On, used: None, config: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    event = an_event(config)
    words = [event if one == "EVENT" else one for one in arguments]
    assert complaint in on("adjustment", *words, "--reason", "r").complaint()
    assert on("adjustment", "list").out == "none\n"


def test_an_adjustment_of_unknown_outcome_names_the_key_to_ask_again_with(
    on: On, used: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(made: Adjustments, asked: Wanted) -> Adjustment:
        await add(made, asked)
        raise LedgerUnavailable("the answer was lost")

    add = Adjustments._add
    words = ("adjustment", "credit", "acme", "--usd", "1", "--reason", "r")
    with monkeypatch.context() as patched:
        patched.setattr(Adjustments, "_add", lost)
        complaint = on(*words).complaint()
    assert "it is unknown whether it was made: run again with --key cli-" in complaint
    (made,) = on(*words, "--key", complaint.split()[-1], "--json").json()
    assert [one["id"] for one in on("adjustment", "list", "--json").json()] == [made["id"]]


def test_an_adjustment_that_somebody_changed_is_named(on: On, used: None, config: Path) -> None:
    (made,) = on("adjustment", "credit", "acme", "--usd", "1", "--reason", "r", "--json").json()
    edit(config, "DROP TRIGGER adjustments_no_update")
    edit(config, "UPDATE adjustments SET reason = 'another'")
    done = on("reconcile")
    assert done.code == 1
    assert f"difference: adjustment {made['id']} of ws_" in done.out and "in the audit log" in done.out


def test_events_are_exported_to_a_file_that_is_whole_or_not_there(on: On, used: None, tmp_path: Path) -> None:
    done = on("export", "events", "--until", "2026-11-01")
    (october,) = [json.loads(line) for line in done.out.splitlines()]
    assert (october["amount_nano_usd"], october["month"]) == (5 * 10**9, "2026-10")
    assert done.err == "1 rows, until 2026-11-01T00:00:00+00:00 (not included)\n"
    path = tmp_path / "out" / "events.csv"
    assert "cannot write" in on("export", "events", "--format", "csv", "--output", path).complaint()
    path.parent.mkdir()
    done = on("export", "events", "--format", "csv", "--output", path, "--limit", 2)
    first, second = done.err.splitlines()
    assert first.startswith("2 rows, until ") and second.startswith("there is more: --cursor ")
    assert path.stat().st_mode & 0o777 == 0o600 and [one.name for one in path.parent.iterdir()] == [path.name]
    rest = on("export", "events", "--cursor", second.split()[-1])
    assert len(rest.out.splitlines()) == 1 and "more" not in rest.err
    wrong = on("export", "events", "--cursor", second.split()[-1], "--workspace", "acme")
    assert "--cursor" in wrong.complaint()
    assert "cursor" in on("export", "events", "--cursor", "x").complaint()
