"""Limits of requests and tokens of workspaces, and of the persons and tags of projects."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("label_rates", sa.Text()))
    of_minutes = ("requests_per_minute", "tokens_per_minute", "max_in_flight")
    for name in (*of_minutes, "requests_per_hour", "requests_per_day", "tokens_per_hour", "tokens_per_day"):
        op.add_column("workspaces", sa.Column(name, sa.BigInteger()))
    with op.batch_alter_table("rate_counters") as table:
        table.alter_column("id", type_=sa.String(96), existing_type=sa.String(64), existing_nullable=False)
        table.create_index("ix_rate_counters_ends_at", ["ends_at"])
