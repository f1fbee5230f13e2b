"""From how much of a budget its chats land."""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE budgets ADD COLUMN land_from_percent INTEGER DEFAULT 100 NOT NULL")
