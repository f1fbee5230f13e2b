"""`billing.accounts.accounts`: keys work until they are revoked, within the published bound, and nothing else works."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from billing.accounts import keys
from billing.accounts.account_sql import Page
from billing.accounts.accounts import Accounts
from billing.accounts.key_cache import KeyCacheTimes
from billing.caller import EACH_PERSON, ProjectLimits
from billing.errors import (
    AccountExists,
    AccountRevoked,
    InvalidAccount,
    InvalidKey,
    LedgerUnavailable,
    UnknownAccount,
)
from billing.store.database import FakeOutageDatabase

if TYPE_CHECKING:
    from tests.billing.conftest import Books

PEPPER = b"a pepper for the tests only"


async def new_token(accounts: Accounts, books: Books) -> tuple[str, str]:
    """A fresh key: its id and its token."""
    caller = await books.new_caller()
    record, token = await accounts.keys.create(caller.project_id, "another", now=books.now)
    return record.id, token


async def test_a_key_leads_to_its_project_workspace_and_limits(books: Books) -> None:
    workspace = await books.accounts.create_workspace("acme", now=books.now)
    limits = ProjectLimits(requests_per_minute=7, max_in_flight=2, weight=3)
    project = await books.accounts.create_project(
        "acme", "search", metered=False, limits=limits, now=books.now
    )
    record, token = await books.accounts.keys.create("acme/search", "laptop", now=books.now)
    caller = await books.accounts.authenticate(token, now=books.now)
    assert (caller.workspace_id, caller.project_id, caller.key_id) == (workspace.id, project.id, record.id)
    assert (caller.metered, caller.limits) == (False, limits)


async def test_limits_of_a_workspace_persons_and_tags_are_set_noted_and_known_to_callers(
    books: Books,
) -> None:
    caller, rates = await books.new_caller(), {EACH_PERSON: {"requests_per_minute": 20}, "support": {}}
    assert (caller.label_limits, caller.workspace_limits) == ({}, ProjectLimits())
    of_workspace = await books.accounts.change_workspace(caller.workspace_id, {"requests_per_day": 9})
    await books.accounts.change_workspace(caller.workspace_id, {"tokens_per_minute": 5})
    assert of_workspace.limits == ProjectLimits(requests_per_day=9)
    rates["support"] = {"tokens_per_day": 7, "max_in_flight": 2}
    changed = await books.accounts.change_project(caller.project_id, {"label_rates": rates})
    assert changed.label_rates == rates and changed.limits == caller.limits
    known = await books.accounts.caller_of(caller.key_id, now=books.now)
    assert known.workspace_limits == ProjectLimits(requests_per_day=9, tokens_per_minute=5)
    assert known.label_limits == {label: ProjectLimits(**limits) for label, limits in rates.items()}
    noted = [one for one in await books.reader().audit_log() if one.action.endswith(".change")]
    assert [one.details for one in noted] == [
        {"requests_per_day": [None, 9]},
        {"tokens_per_minute": [None, 5]},
        {"label_rates": [None, rates]},
    ]
    nothing: tuple[dict[str, Any] | None, ...] = ({}, None)
    for none in nothing:
        changed = await books.accounts.change_project(caller.project_id, {"label_rates": none})
        assert changed.label_rates is None


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ([], "must be an object"),
        ({"*": 5}, "must be an object"),
        ({"a b": {}}, "tags of"),
        ({f"t{number}": {} for number in range(21)}, "at most 20"),
        ({"*": {"weight": 2}}, "weight: .* no such setting"),
        ({"*": {"requests_per_day": 0}}, "requests_per_day: must be an integer of at least 1"),
        ({"*": {"requests_per_day": 1.5}}, "requests_per_day: must be an integer of at least 1"),
        ({"*": {"tokens_per_day": 2**53 + 1}}, "must be at most"),
    ],
)
async def test_rates_that_no_label_may_have_are_refused(books: Books, rates: Any, says: str) -> None:
    caller = await books.new_caller()
    with pytest.raises(InvalidAccount, match=says):
        await books.accounts.change_project(caller.project_id, {"label_rates": rates})
    with pytest.raises(InvalidAccount, match="weight"):
        await books.accounts.change_workspace(caller.workspace_id, {"weight": 2})


async def test_neither_a_secret_nor_a_token_is_stored(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    rows = await books.database.read(lambda c: c.execute(text("SELECT * FROM api_keys")).all())
    stored = " ".join(str(value) for row in rows for value in row)
    assert keys.parse(token).secret not in stored


@pytest.mark.parametrize("part", ["secret", "id"])
async def test_a_key_with_another_secret_or_id_is_invalid(books: Books, part: str) -> None:
    _, token = await new_token(books.accounts, books)
    mine, other = keys.parse(token), keys.mint()
    forged = (
        keys.ApiKey(mine.key_id, other.secret) if part == "secret" else keys.ApiKey(other.key_id, mine.secret)
    )
    with pytest.raises(InvalidKey):
        await books.accounts.authenticate(forged.token, now=books.now)
    await books.accounts.authenticate(token, now=books.now)


async def test_a_key_of_another_servers_pepper_is_invalid(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    stranger = Accounts(books.database, pepper=b"the pepper of another server")
    with pytest.raises(InvalidKey):
        await stranger.authenticate(token, now=books.now)


@pytest.mark.parametrize("kind", ["key", "project", "workspace"])
async def test_revoking_takes_effect_at_once_on_the_server_that_did_it(books: Books, kind: str) -> None:
    key_id, token = await new_token(books.accounts, books)
    caller = await books.accounts.authenticate(token, now=books.now)
    if kind == "key":
        await books.accounts.keys.revoke(key_id, now=books.now)
    elif kind == "project":
        await books.accounts.revoke_project(caller.project_id, now=books.now)
    else:
        await books.accounts.revoke_workspace(caller.workspace_id, now=books.now)
    with pytest.raises(InvalidKey):
        await books.accounts.authenticate(token, now=books.now)


async def test_revoking_takes_effect_within_the_bound_on_another_server(books: Books) -> None:
    key_id, token = await new_token(books.accounts, books)
    other = Accounts(books.database, pepper=PEPPER, cache_times=KeyCacheTimes(ttl_s=5))
    await other.authenticate(token, now=books.now)
    await books.accounts.keys.revoke(key_id, now=books.now)
    # In use all the time: being used must not keep it alive.
    for seconds in (1, 2, 3, 4, 4.99):
        await other.authenticate(token, now=books.now + timedelta(seconds=seconds))
    with pytest.raises(InvalidKey):
        await other.authenticate(token, now=books.now + timedelta(seconds=5))


async def test_a_revoked_key_can_be_named_by_the_whole_token_and_keeps_its_first_date(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    first = await books.accounts.keys.revoke(token, now=books.now)
    again = await books.accounts.keys.revoke(token, now=books.now + timedelta(days=1))
    assert first.revoked_at == again.revoked_at == books.now


async def test_changed_limits_reach_a_cached_caller(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    caller = await books.accounts.authenticate(token, now=books.now)
    await books.accounts.change_project(caller.project_id, {"tokens_per_minute": 5})
    await books.accounts.change_project(caller.project_id, {"metered": False})
    caller = await books.accounts.authenticate(token, now=books.now)
    assert (caller.metered, caller.limits) == (False, ProjectLimits(tokens_per_minute=5))


async def test_a_changed_compression_reaches_other_servers_within_the_published_time(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    server = Accounts(books.database, pepper=PEPPER)
    caller = await server.authenticate(token, now=books.now)
    assert caller.compression is None
    changed = await books.accounts.change_project(caller.project_id, {"compression": '{"keep":0.95}'})
    assert changed.compression == '{"keep":0.95}'
    # In use all the time: being used must not keep the old one.
    for seconds in (1, 2, 3, 4, 4.99):
        await server.authenticate(token, now=books.now + timedelta(seconds=seconds))
    later = books.now + timedelta(seconds=KeyCacheTimes().ttl_s)
    assert (await server.authenticate(token, now=later)).compression == '{"keep":0.95}'
    await books.accounts.change_project(caller.project_id, {"compression": None})
    # On the server that changed it, at once.
    assert (await books.accounts.authenticate(token, now=books.now)).compression is None


async def test_a_project_is_made_with_its_compression(books: Books) -> None:
    caller = await books.new_caller()
    made = await books.accounts.create_project(caller.workspace_id, "p", compression="{}", now=books.now)
    assert made.compression == "{}"
    assert (await books.accounts.find_project(made.id)).compression == "{}"


@pytest.mark.parametrize("compression", ["", "{" + " " * 4096])
async def test_a_compression_that_is_empty_or_too_long_is_refused(books: Books, compression: str) -> None:
    caller = await books.new_caller()
    with pytest.raises(InvalidAccount, match="compression: must have 1 to 4096 characters"):
        await books.accounts.change_project(caller.project_id, {"compression": compression})


async def test_a_busy_key_is_read_once(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    counted = FakeOutageDatabase(books.database)
    accounts = Accounts(counted, pepper=PEPPER)
    await asyncio.gather(*(accounts.authenticate(token, now=books.now) for _ in range(50)))
    assert counted.reads == 1


async def test_a_caller_who_leaves_does_not_fail_the_others(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    first = asyncio.create_task(books.accounts.authenticate(token, now=books.now))
    second = asyncio.create_task(books.accounts.authenticate(token, now=books.now))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).key_id == keys.parse(token).key_id
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_unknown_id_is_remembered_for_a_second_only(books: Books) -> None:
    counted = FakeOutageDatabase(books.database)
    accounts = Accounts(counted, pepper=PEPPER)
    token = keys.mint().token
    for seconds in (0, 0.5, 0.9, 1.0):
        with pytest.raises(InvalidKey):
            await accounts.authenticate(token, now=books.now + timedelta(seconds=seconds))
    assert counted.reads == 2


async def test_a_ledger_that_is_away_is_not_an_invalid_key(books: Books) -> None:
    _, token = await new_token(books.accounts, books)
    outage = FakeOutageDatabase(books.database)
    accounts = Accounts(outage, pepper=PEPPER)
    outage.is_down = True
    with pytest.raises(LedgerUnavailable):
        await accounts.authenticate(token, now=books.now)
    outage.is_down = False
    await accounts.authenticate(token, now=books.now)


async def test_while_the_ledger_is_away_a_known_key_works_for_the_configured_time(books: Books) -> None:
    _, known = await new_token(books.accounts, books)
    _, unknown = await new_token(books.accounts, books)
    outage = FakeOutageDatabase(books.database)
    accounts = Accounts(outage, pepper=PEPPER, cache_times=KeyCacheTimes(outage_s=60))
    await accounts.authenticate(known, now=books.now)
    outage.is_down = True
    await accounts.authenticate(known, now=books.now + timedelta(seconds=59))
    for token, seconds in ((known, 60), (unknown, 0)):
        with pytest.raises(LedgerUnavailable):
            await accounts.authenticate(token, now=books.now + timedelta(seconds=seconds))


async def test_a_key_in_constant_use_is_refused_five_seconds_after_its_revocation_on_every_server(
    books: Books,
) -> None:
    key_id, token = await new_token(books.accounts, books)
    # Each has read the key at a moment of its own, as the servers behind one port have.
    servers = [
        Accounts(books.database, pepper=PEPPER, cache_times=KeyCacheTimes(outage_s=60)) for _ in range(3)
    ]
    last_served = [0.0] * len(servers)
    revoked_at = 7.3
    for tenth in range(200):
        seconds = tenth / 10
        if seconds > revoked_at:
            await books.accounts.keys.revoke(key_id, now=books.now)
        for number, server in enumerate(servers):
            if tenth >= number * 17:
                try:
                    await server.authenticate(token, now=books.now + timedelta(seconds=seconds))
                    last_served[number] = seconds
                except InvalidKey:
                    assert seconds > revoked_at
    assert all(revoked_at - 0.1 < last < revoked_at + 5 for last in last_served), last_served


async def test_an_outage_does_not_bring_a_revoked_key_back(books: Books) -> None:
    key_id, token = await new_token(books.accounts, books)
    outage = FakeOutageDatabase(books.database)
    accounts = Accounts(outage, pepper=PEPPER, cache_times=KeyCacheTimes(outage_s=60))
    await accounts.authenticate(token, now=books.now)
    await books.accounts.keys.revoke(key_id, now=books.now)
    with pytest.raises(InvalidKey):
        await accounts.authenticate(token, now=books.now + timedelta(seconds=6))
    outage.is_down = True
    for seconds in (6.5, 8, 30):
        with pytest.raises((InvalidKey, LedgerUnavailable)):
            await accounts.authenticate(token, now=books.now + timedelta(seconds=seconds))


async def test_in_an_outage_the_ledger_is_asked_for_keys_once_a_second_and_heard_when_it_is_back(
    books: Books,
) -> None:
    key_id, token = await new_token(books.accounts, books)
    outage = FakeOutageDatabase(books.database)
    accounts = Accounts(outage, pepper=PEPPER, cache_times=KeyCacheTimes(outage_s=60))
    await accounts.authenticate(token, now=books.now)
    outage.is_down, outage.reads = True, 0
    for tenth in range(60, 160):
        await accounts.authenticate(token, now=books.now + timedelta(seconds=tenth / 10))
    assert outage.reads == 10
    outage.is_down = False
    await books.accounts.keys.revoke(key_id, now=books.now)
    with pytest.raises(InvalidKey):
        await accounts.authenticate(token, now=books.now + timedelta(seconds=17))


@pytest.mark.parametrize(
    "evil", ["' OR '1'='1", 'x"; DROP TABLE api_keys; --', "%", "\\", "a\u0000b", "\ud800", "x" * 10_000]
)
async def test_no_name_is_read_as_sql(books: Books, evil: str) -> None:
    with pytest.raises(UnknownAccount):
        await books.accounts.find_workspace(evil)
    with pytest.raises(UnknownAccount):
        await books.accounts.find_project(evil)
    with pytest.raises(UnknownAccount):
        await books.accounts.keys.revoke(evil, now=books.now)
    with pytest.raises(UnknownAccount):
        await books.accounts.list_projects(evil)
    assert await books.accounts.keys.listed() == []


async def test_an_evil_name_that_may_be_stored_comes_back_as_it_was(books: Books) -> None:
    name = "Robert'); DROP TABLE workspaces;--"
    await books.accounts.create_workspace(name, now=books.now)
    assert (await books.accounts.find_workspace(name)).name == name


async def test_a_taken_name_is_refused_and_the_same_project_name_elsewhere_is_not(books: Books) -> None:
    for workspace in ("one", "two"):
        await books.accounts.create_workspace(workspace, now=books.now)
        await books.accounts.create_project(workspace, "same", now=books.now)
    with pytest.raises(AccountExists, match="workspace named 'one'"):
        await books.accounts.create_workspace("one", now=books.now)
    with pytest.raises(AccountExists, match="project named 'same'"):
        await books.accounts.create_project("two", "same", now=books.now)


@pytest.mark.parametrize("name", ["", " ", " a", "a/b", "ws_1", "prj_1", "a\nb", "x" * 65])
async def test_a_name_that_could_mislead_is_refused(books: Books, name: str) -> None:
    with pytest.raises(InvalidAccount, match="name"):
        await books.accounts.create_workspace(name, now=books.now)


async def test_a_limit_that_no_column_can_hold_is_refused_by_name(books: Books) -> None:
    with pytest.raises(InvalidAccount, match="spend_limit_nano_usd"):
        await books.accounts.create_workspace("a", spend_limit_nano_usd=2**63, now=books.now)
    with pytest.raises(InvalidAccount, match="monthly_limit_nano_usd"):
        await books.accounts.create_workspace("a", monthly_limit_nano_usd=-1, now=books.now)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_project_limit_that_is_no_positive_integer_is_refused_by_name(limit: int) -> None:
    with pytest.raises(ValueError, match="tokens_per_minute"):
        ProjectLimits(tokens_per_minute=limit)


async def test_lists_come_in_order_of_creation_and_within_their_owner(books: Books) -> None:
    for number, name in enumerate(("b", "a")):
        await books.accounts.create_workspace(name, now=books.now + timedelta(seconds=number))
        await books.accounts.create_project(name, "p", now=books.now)
        await books.accounts.keys.create(f"{name}/p", f"key of {name}", now=books.now)
    assert [workspace.name for workspace in await books.accounts.list_workspaces()] == ["b", "a"]
    assert len(await books.accounts.list_projects()) == 2
    (project,) = await books.accounts.list_projects("a")
    assert (await books.accounts.find_project("a/p")) == project.project
    assert project.workspace == await books.accounts.find_workspace("a")
    for narrowed in ({"workspace": "a"}, {"project": "a/p"}):
        assert [one.key.name for one in await books.accounts.keys.listed(**narrowed)] == ["key of a"]
    assert await books.accounts.keys.listed(workspace="b", project="a/p") == []


async def test_a_list_says_what_was_revoked_and_the_outermost_of_it(books: Books) -> None:
    for name in ("a", "b", "c"):
        await books.accounts.create_workspace(name, now=books.now)
        await books.accounts.create_project(name, "p", now=books.now)
        record, _ = await books.accounts.keys.create(f"{name}/p", f"key of {name}", now=books.now)
        await books.accounts.keys.revoke(record.id, now=books.now)
    await books.accounts.revoke_project("b/p", now=books.now)
    await books.accounts.revoke_project("c/p", now=books.now)
    await books.accounts.revoke_workspace("c", now=books.now)
    revoked = {one.workspace.name: one.revoked for one in await books.accounts.keys.listed()}
    assert revoked == {"a": "key", "b": "project", "c": "workspace"}
    revoked = {one.workspace.name: one.revoked for one in await books.accounts.list_projects()}
    assert revoked == {"a": None, "b": "project", "c": "workspace"}


async def test_nothing_is_made_in_what_was_revoked(books: Books) -> None:
    await books.accounts.create_workspace("a", now=books.now)
    await books.accounts.create_project("a", "p", now=books.now)
    await books.accounts.create_project("a", "q", now=books.now)
    await books.accounts.revoke_project("a/p", now=books.now)
    with pytest.raises(AccountRevoked, match=r"project 'p' was revoked on 2026-11-20"):
        await books.accounts.keys.create("a/p", "k", now=books.now)
    await books.accounts.revoke_workspace("a", now=books.now)
    with pytest.raises(AccountRevoked, match=r"workspace 'a' was revoked on 2026-11-20"):
        await books.accounts.keys.create("a/q", "k", now=books.now)
    with pytest.raises(AccountRevoked, match="a project in it would never work"):
        await books.accounts.create_project("a", "r", now=books.now)
    assert await books.accounts.keys.listed() == []


async def test_unknown_accounts_are_named(books: Books) -> None:
    await books.accounts.create_workspace("acme", now=books.now)
    with pytest.raises(UnknownAccount, match=r"project .* 'acme/none'"):
        await books.accounts.keys.create("acme/none", "k", now=books.now)
    with pytest.raises(UnknownAccount, match=r"workspace .* 'none'"):
        await books.accounts.create_project("none", "p", now=books.now)


async def test_spend_limits_can_be_set_and_lifted(books: Books) -> None:
    await books.accounts.create_workspace("acme", spend_limit_nano_usd=5, now=books.now)
    changed = await books.accounts.change_workspace(
        "acme", {"spend_limit_nano_usd": None, "monthly_limit_nano_usd": 7}
    )
    assert (changed.spend_limit_nano_usd, changed.monthly_limit_nano_usd) == (None, 7)


async def test_changes_of_different_settings_at_the_same_time_are_all_kept(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000, monthly_limit_nano_usd=1000)
    workspace, project = caller.workspace_id, caller.project_id
    accounts = books.accounts
    for n in range(1, 4):
        await asyncio.gather(
            accounts.change_workspace(workspace, {"spend_limit_nano_usd": n}),
            accounts.change_workspace(workspace, {"monthly_limit_nano_usd": 10 * n}),
            accounts.change_project(project, {"requests_per_minute": n, "weight": n + 1}),
            accounts.change_project(project, {"tokens_per_minute": 10 * n, "metered": n % 2 == 0}),
        )
        found = await accounts.find_workspace(workspace)
        assert (found.spend_limit_nano_usd, found.monthly_limit_nano_usd) == (n, 10 * n)
        part = await accounts.find_project(project)
        assert part.limits == ProjectLimits(n, 10 * n, weight=n + 1) and part.metered == (n % 2 == 0)


@pytest.mark.parametrize("values", [{"weight": 0}, {"max_in_flight": 0}, {"name": "x"}])
async def test_a_setting_that_no_project_may_have_is_named(books: Books, values: dict[str, int]) -> None:
    caller = await books.new_caller()
    with pytest.raises(InvalidAccount, match=next(iter(values))):
        await books.accounts.change_project(caller.project_id, values)


async def test_lists_are_read_a_page_at_a_time_in_one_order(books: Books) -> None:
    # All made at one moment: their ids alone tell them apart.
    callers = [await books.new_caller() for _ in range(5)]
    accounts = books.accounts
    assert len({caller.workspace_id for caller in callers}) == 5

    async def ids(page: Page | None) -> list[str]:
        return [one.key.id for one in await accounts.keys.listed(page=page)]

    whole, seen = await ids(None), list[str]()
    while page := await ids(Page(2, seen[-1] if seen else None)):
        seen += page
    assert seen == whole and len(whole) == 5
    workspaces = await accounts.list_workspaces()
    assert await accounts.list_workspaces(Page(9, workspaces[1].id)) == workspaces[2:]
    projects = await accounts.list_projects()
    assert await accounts.list_projects(page=Page(1, projects[0].project.id)) == projects[1:2]
    for nothing in ("nothing", "\0"):
        with pytest.raises(UnknownAccount):
            await accounts.list_workspaces(Page(1, nothing))
