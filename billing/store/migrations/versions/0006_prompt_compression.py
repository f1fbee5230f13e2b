"""What compression made of a chat's prompt and saved, the price of cached input, and a project's compression."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable, or with constant defaults that both databases keep in the catalog: existing rows are not touched.
    op.add_column("projects", sa.Column("compression", sa.Text))
    op.add_column("prices", sa.Column("cached_input_micro_usd_per_mtok", sa.BigInteger))
    op.add_column("usage_events", sa.Column("original_tokens", sa.BigInteger))
    op.add_column("usage_events", sa.Column("original_cached_tokens", sa.BigInteger))
    for name in ("saved_nano_usd", "compression_nano_usd"):
        op.add_column("usage_events", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("usage_events", sa.Column("compression", sa.String(16)))
    for name in ("conversation", "paired_with"):
        op.add_column("usage_events", sa.Column(name, sa.String(32)))
