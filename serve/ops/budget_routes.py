"""Budgets over HTTP: the verbs of `pith budget`."""

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictInt

from billing.ledger.budget_settings import scope_of
from billing.periods import PeriodKind
from serve.operator import accounts as views
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers
from serve.ops.bodies import LIMIT, AdminBody, Cursor, Limit, Tag, Usd, nano_usd, page_of, page_to_read


class BudgetSetting(AdminBody):
    workspace: str | None = Field(None, max_length=64, description="Id or name. One of the three is named.")
    project: str | None = Field(None, max_length=160, description="Id, or workspace/name.")
    key: str | None = Field(None, max_length=64, description="Id.")
    person: StrictBool = Field(False, description="With a project: of each person whom its requests name.")
    tag: Tag | None = Field(None, description="With a project: of its requests with this tag.")
    period: PeriodKind = Field(description="In the time zone of the workspace; `total`: in all.")
    limit_usd: Usd
    at_end: str | None = Field(
        None,
        pattern="^(refuse|flex|model:.+)$",
        max_length=160,
        description="For a chat that it has no room for: `refuse`, `flex`, `model:ID`.",
    )
    land_from_percent: StrictInt | None = Field(
        None, ge=1, le=100, description="Chats land from so much of it on, spent or held; at first 100."
    )


def budget_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/budgets", tags=["budgets"])

    @routes.put("", **answers(views.Budget, 404))
    async def set_budget(body: BudgetSetting, admin: Caller) -> Record:
        """Set the budget of a workspace, a project or a key, or of a project's persons or a tag. One that was there
        gets the new limit and counts on."""
        named = body.given("workspace", "project", "key")
        scope, of = scope_of(named, person=body.person, tag=body.tag)
        limit = nano_usd(body.limit_usd) or 0
        how = body.given("tag", "at_end", "land_from_percent")
        return await admin.set_budget(scope, of, body.period, limit, **how)

    @routes.get("", **answers(views.Budgets, 404))
    async def list_budgets(
        admin: Caller, workspace: str | None = None, cursor: Cursor = None, limit: Limit = LIMIT
    ) -> Record:
        """Budgets, oldest first, with what is used and left of each now, and when it resets."""
        return page_of(await admin.budgets(workspace, page_to_read(cursor, limit)), limit)

    @routes.delete("/{budget}", **answers(views.Budget, 404))
    async def remove_budget(budget: str, admin: Caller) -> Record:
        """End a budget; returns what it was."""
        return await admin.remove_budget(budget)

    return routes
