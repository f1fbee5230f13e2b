"""Budgets by period, of workspaces, projects and keys, and the time zones of workspaces."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE workspaces ADD COLUMN time_zone VARCHAR(64) DEFAULT 'UTC' NOT NULL")
    op.execute("ALTER TABLE workspaces ADD COLUMN has_budgets BOOLEAN DEFAULT FALSE NOT NULL")
    op.execute("ALTER TABLE holds ADD COLUMN budgets TEXT")
    op.execute("ALTER TABLE usage_events ADD COLUMN budgets TEXT")
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("period", sa.String(8), nullable=False),
        _amount("limit"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
        sa.UniqueConstraint("subject", "period", name="uq_budgets_subject"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_budgets_workspace_id"),
        sa.CheckConstraint("limit_nano_usd >= 0", name="ck_budgets_limit"),
    )
    op.create_table(
        "budget_counters",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(32), nullable=False),
        _amount("posted"),
        _amount("held"),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("ends_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_budget_counters"),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name="fk_budget_counters_budget_id"),
        sa.CheckConstraint("posted_nano_usd >= 0", name="ck_budget_counters_posted"),
        sa.CheckConstraint("held_nano_usd >= 0", name="ck_budget_counters_held"),
    )
    for table, *columns in (
        ("budgets", "workspace_id"),
        ("budgets", "created_at", "id"),
        ("budget_counters", "budget_id"),
        ("budget_counters", "ends_at"),
    ):
        op.create_index(f"ix_{table}_{columns[0]}", table, columns)


def _amount(name: str) -> sa.Column[int]:
    return sa.Column(f"{name}_nano_usd", sa.BigInteger(), nullable=False)
