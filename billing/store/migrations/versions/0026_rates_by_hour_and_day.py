"""Limits of requests and tokens by hour and day, of projects and keys."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("projects", "api_keys"):
        for name in ("requests_per_hour", "requests_per_day", "tokens_per_hour", "tokens_per_day"):
            op.add_column(table, sa.Column(name, sa.BigInteger()))
    op.create_table(
        "rate_counters",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rate_counters"),
    )
