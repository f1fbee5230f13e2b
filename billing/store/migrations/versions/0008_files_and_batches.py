"""Files that projects upload, batches of requests over them, and the part of its price that an event was charged."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A constant default, which both databases keep in the catalog: existing rows are not touched.
    whole = sa.Column("price_ppm", sa.Integer, nullable=False, server_default="1000000")
    op.add_column("usage_events", whole)
    _create_files()
    _create_batches()
    _create_lines()


def _create_files() -> None:
    op.create_table(
        "batch_files",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_batch_files"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_batch_files_project_id"),
    )
    op.create_index("ix_batch_files_project_id", "batch_files", ["project_id", "created_at", "id"])
    op.create_index("ix_batch_files_expires_at", "batch_files", ["expires_at"])
    op.create_table(
        "batch_file_totals",
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_batch_file_totals"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_batch_file_totals_project_id"),
        sa.CheckConstraint("files >= 0 AND bytes >= 0", name="ck_batch_file_totals_sums"),
    )


def _create_batches() -> None:
    moments = ("in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled", "expired")
    op.create_table(
        "batches",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("input_file_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("completion_window", sa.String(16), nullable=False),
        sa.Column("metadata_json", sa.Text),
        sa.Column("pricing_version", sa.Integer, nullable=False),
        sa.Column("price_ppm", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("ends_as", sa.String(16), nullable=False),
        sa.Column("worker", sa.String(32)),
        sa.Column("leased_until", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        *(sa.Column(f"{moment}_at", sa.Double) for moment in moments),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("lines_completed", sa.Integer, nullable=False),
        sa.Column("lines_failed", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("errors", sa.Text),
        sa.Column("output_file_id", sa.String(64)),
        sa.Column("error_file_id", sa.String(64)),
        sa.Column("cleared", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_batches_project_id"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_batches_key_id"),
    )
    op.create_index("ix_batches_project_id", "batches", ["project_id", "created_at", "id"])
    op.create_index("ix_batches_cleared", "batches", ["cleared", "status"])
    op.create_index("ix_batches_input_file_id", "batches", ["input_file_id"])


def _create_lines() -> None:
    op.create_table(
        "batch_lines",
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("custom_id", sa.String(512), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger, nullable=False),
        sa.Column("length_bytes", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("claim", sa.String(32)),
        sa.Column("claimable_at", sa.Double, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("result", sa.Text),
        sa.PrimaryKeyConstraint("batch_id", "number", name="pk_batch_lines"),
        sa.UniqueConstraint("batch_id", "custom_id", name="uq_batch_lines_batch_id"),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_batch_lines_batch_id"),
    )
    op.create_index("ix_batch_lines_state", "batch_lines", ["batch_id", "state", "number"])
