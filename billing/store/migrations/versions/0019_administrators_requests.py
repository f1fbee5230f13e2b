"""Idempotency keys that administrators have sent, so that nothing is made twice after a restart or by two servers."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "administrators_requests",
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("idempotency_key", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("began_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("actor", "idempotency_key", name="pk_administrators_requests"),
    )
