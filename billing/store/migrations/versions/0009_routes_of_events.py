"""What was asked, beside what it cost: the route of a usage event."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL in the rows that are there: nothing says it of them.
    op.add_column("usage_events", sa.Column("route", sa.String(32)))
