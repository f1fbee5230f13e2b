"""Soft landings of budgets."""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE budgets ADD COLUMN at_end VARCHAR(160) DEFAULT 'refuse' NOT NULL")
