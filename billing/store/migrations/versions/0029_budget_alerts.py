"""Percentages of budgets that were reached and announced. What is posted by now counts with the next charge."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("reached", "announced"):
        op.execute(f"ALTER TABLE budget_counters ADD COLUMN {name}_percent INTEGER DEFAULT 0 NOT NULL")
    op.execute(
        "CREATE INDEX ix_budget_counters_due ON budget_counters (budget_id) WHERE reached_percent > announced_percent"
    )
