"""Accounts, keys, price versions, holds and the append-only usage table."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# What was written to these is never changed: corrections are new rows.
APPEND_ONLY = ("usage_events", "price_lists", "prices")


def upgrade() -> None:
    _create_accounts()
    _create_prices()
    _create_ledger()
    for table in APPEND_ONLY:
        _forbid_changes(table)


def _time(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _create_accounts() -> None:
    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("billing_enabled", sa.Boolean, nullable=False),
        sa.Column("spend_limit_nano_usd", sa.BigInteger),
        sa.Column("monthly_limit_nano_usd", sa.BigInteger),
        sa.Column("posted_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("held_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("month_posted_nano_usd", sa.BigInteger, nullable=False),
        _time("created_at"),
        _time("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_workspaces"),
        sa.UniqueConstraint("name", name="uq_workspaces_name"),
        sa.CheckConstraint("posted_nano_usd >= 0", name="ck_workspaces_posted"),
        sa.CheckConstraint("held_nano_usd >= 0", name="ck_workspaces_held"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("metered", sa.Boolean, nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("max_in_flight", sa.BigInteger),
        _time("created_at"),
        _time("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_projects_workspace_id"),
        sa.UniqueConstraint("workspace_id", "name", name="uq_projects_workspace_id"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        _time("created_at"),
        _time("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id"),
    )
    op.create_index("ix_api_keys_project_id", "api_keys", ["project_id"])


def _create_prices() -> None:
    op.create_table(
        "price_lists",
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        _time("created_at"),
        sa.PrimaryKeyConstraint("version", name="pk_price_lists"),
    )
    op.create_table(
        "prices",
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("model_id", sa.String(256), nullable=False),
        sa.Column("input_micro_usd_per_mtok", sa.BigInteger, nullable=False),
        sa.Column("output_micro_usd_per_mtok", sa.BigInteger, nullable=False),
        sa.Column("minimum_nano_usd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("version", "model_id", name="pk_prices"),
        sa.ForeignKeyConstraint(["version"], ["price_lists.version"], name="fk_prices_version"),
    )


def _create_ledger() -> None:
    op.create_table(
        "holds",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("amount_nano_usd", sa.BigInteger, nullable=False),
        _time("created_at"),
        sa.PrimaryKeyConstraint("event_id", name="pk_holds"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_holds_workspace_id"),
    )
    op.create_index("ix_holds_created_at", "holds", ["created_at"])
    op.create_table(
        "usage_events",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("model_id", sa.String(256), nullable=False),
        sa.Column("pricing_version", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("subtotal_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("minimum_applied", sa.Boolean, nullable=False),
        sa.Column("cost_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("stream", sa.Boolean, nullable=False),
        _time("created_at"),
        _time("settled_at"),
        sa.PrimaryKeyConstraint("event_id", name="pk_usage_events"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_usage_events_workspace_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_usage_events_project_id"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_usage_events_key_id"),
        sa.ForeignKeyConstraint(
            ["pricing_version", "model_id"],
            ["prices.version", "prices.model_id"],
            name="fk_usage_events_pricing_version",
        ),
        sa.CheckConstraint("cost_nano_usd >= 0", name="ck_usage_events_cost"),
    )
    op.create_index("ix_usage_events_workspace_id", "usage_events", ["workspace_id", "settled_at"])


def _forbid_changes(table: str) -> None:
    """Below every code path: the database itself refuses to rewrite history."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} is append-only' "
        f"USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only()"
    )
