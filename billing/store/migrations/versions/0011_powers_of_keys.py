"""Expiry, last use, allowed models and routes, and limits of keys, with the money of those that have a spend limit."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # By the database's clock, in seconds since 1970.
    op.add_column("api_keys", sa.Column("expires_at", sa.Double))
    op.add_column("api_keys", sa.Column("last_used_at", sa.Double))
    # Lists of names as JSON.
    op.add_column("api_keys", sa.Column("allowed_models", sa.Text))
    op.add_column("api_keys", sa.Column("allowed_routes", sa.Text))
    for limit in ("requests_per_minute", "tokens_per_minute", "max_in_flight"):
        op.add_column("api_keys", sa.Column(limit, sa.BigInteger))
    for limit in ("spend_limit_nano_usd", "monthly_limit_nano_usd"):
        op.add_column("api_keys", sa.Column(limit, sa.BigInteger))
    # As text, since Alembic would rebuild the table on SQLite to add a constraint.
    for figure in ("posted", "held"):
        op.execute(
            f"ALTER TABLE api_keys ADD COLUMN {figure}_nano_usd BIGINT DEFAULT 0 NOT NULL "
            f"CONSTRAINT ck_api_keys_{figure} CHECK ({figure}_nano_usd >= 0)"
        )
    op.add_column("api_keys", sa.Column("month", sa.String(7)))
    op.add_column(
        "api_keys", sa.Column("month_posted_nano_usd", sa.BigInteger, nullable=False, server_default="0")
    )
    op.add_column("api_keys", sa.Column("budget_key_id", sa.String(16)))
    op.add_column(
        "workspaces", sa.Column("has_limited_keys", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("holds", sa.Column("key_id", sa.String(16)))
    op.create_table(
        "key_months",
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("posted_nano_usd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "month", name="pk_key_months"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_key_months_key_id"),
    )
