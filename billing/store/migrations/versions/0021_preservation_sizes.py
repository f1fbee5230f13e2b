"""Sizes of compressed prompts that a bound of what they change decides, by project."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TABLE = "preservation_sizes"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("compression", sa.Text(), nullable=False),
        sa.Column("step", sa.Double(), nullable=False),
        sa.Column("position", sa.Double(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("squares", sa.Double(), nullable=False),
        sa.Column("stepped_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("project_id", name=f"pk_{TABLE}"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=f"fk_{TABLE}_project_id"),
    )
