"""Credits, adjustments and refunds, and how much each workspace was credited. No row is rewritten."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # As text, since Alembic would rebuild the table on SQLite to add a constraint. A constant default is kept
    # in the catalog by both databases, so existing rows are not touched.
    op.execute(
        "ALTER TABLE workspaces ADD COLUMN credited_nano_usd BIGINT DEFAULT 0 NOT NULL "
        "CONSTRAINT ck_workspaces_credited CHECK (credited_nano_usd >= 0)"
    )
    _create_adjustments()
    _forbid_changes()


def _create_adjustments() -> None:
    op.create_table(
        "adjustments",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("nano_usd", sa.BigInteger, nullable=False),
        sa.Column("event_id", sa.String(32)),
        sa.Column("project_id", sa.String(32)),
        sa.Column("key_id", sa.String(16)),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.String(1024), nullable=False),
        sa.Column("idempotency_key", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_adjustments"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_adjustments_workspace_id"),
        sa.UniqueConstraint("workspace_id", "idempotency_key", name="uq_adjustments_workspace_id"),
        sa.CheckConstraint(
            "kind IN ('credit', 'adjustment', 'refund') AND nano_usd <> 0 AND (nano_usd < 0 OR kind = 'adjustment')",
            name="ck_adjustments_amount",
        ),
        sa.CheckConstraint("(kind = 'refund') = (event_id IS NOT NULL)", name="ck_adjustments_event"),
    )
    op.create_index("ix_adjustments_workspace_id", "adjustments", ["workspace_id", "created_at", "id"])
    op.create_index("ix_adjustments_event_id", "adjustments", ["event_id"])


def _forbid_changes() -> None:
    """Below every code path: the database itself refuses to rewrite history."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER adjustments_no_{verb.lower()} BEFORE {verb} ON adjustments "
                "BEGIN SELECT RAISE(ABORT, 'adjustments is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION adjustments_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'adjustments is append-only' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        "CREATE TRIGGER adjustments_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON adjustments "
        "FOR EACH STATEMENT EXECUTE FUNCTION adjustments_append_only()"
    )
