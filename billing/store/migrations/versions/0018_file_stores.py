"""File stores: which folder has a file's content, which deployment runs a batch, and who was seen with which folder."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Constant defaults: rows that are there are not touched. Of these it is not known; who has the content says so.
    for table, columns in (
        ("batch_files", ("store VARCHAR(32) DEFAULT '' NOT NULL", "counted BOOLEAN DEFAULT true NOT NULL")),
        ("batches", ("store VARCHAR(32) DEFAULT '' NOT NULL", "deployment VARCHAR(64) DEFAULT '' NOT NULL")),
    ):
        for column in columns:
            op.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    op.create_table(
        "file_stores",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_file_stores"),
    )
