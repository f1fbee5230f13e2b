"""Texts that projects asked to have kept for a while, encrypted in chunks."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "originals",
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("generation", sa.String(32), nullable=False),
        sa.Column("characters", sa.BigInteger, nullable=False),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "id", name="pk_originals"),
        sa.UniqueConstraint("generation", name="uq_originals_generation"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_originals_project_id"),
    )
    op.create_index("ix_originals_expires_at", "originals", ["expires_at"])
    op.create_table(
        "original_chunks",
        sa.Column("generation", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("generation", "number", name="pk_original_chunks"),
        sa.ForeignKeyConstraint(
            ["generation"], ["originals.generation"], name="fk_original_chunks_generation"
        ),
    )
    if op.get_bind().dialect.name == "postgresql":
        # It would try to compress every chunk, and ciphertext cannot be compressed.
        op.execute("ALTER TABLE original_chunks ALTER COLUMN ciphertext SET STORAGE EXTERNAL")
    op.create_table(
        "original_totals",
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_original_totals"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_original_totals_project_id"),
        sa.CheckConstraint("bytes >= 0", name="ck_original_totals_bytes"),
    )
