"""Chats whose reply was scored again under the prompt as it was before compression."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLE = "preservation_checks"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("model_id", sa.String(256), nullable=False),
        sa.Column("compression_model_id", sa.String(256), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kinds", sa.String(64), nullable=False),
        sa.Column("target_ratio", sa.Double()),
        sa.Column("keep", sa.Double()),
        sa.Column("original_tokens", sa.BigInteger(), nullable=False),
        sa.Column("sent_tokens", sa.BigInteger(), nullable=False),
        sa.Column("scored_tokens", sa.Integer(), nullable=False),
        sa.Column("agreeing_tokens", sa.Integer(), nullable=False),
        sa.Column("nats_per_token", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=f"pk_{TABLE}"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=f"fk_{TABLE}_workspace_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=f"fk_{TABLE}_project_id"),
    )
    op.create_index(f"ix_{TABLE}_workspace_id", TABLE, ["workspace_id", "settled_at"])
    op.create_index(f"ix_{TABLE}_project_id", TABLE, ["project_id", "settled_at"])
    op.create_index(f"ix_{TABLE}_settled_at", TABLE, ["settled_at"])
