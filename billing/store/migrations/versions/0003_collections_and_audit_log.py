"""Collections, how much of each workspace's charges they cover, and the audit log. No row is rewritten."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# What was asked of a workspace stays as it was asked; only what became of it changes.
FIXED = ("id", "workspace_id", "idempotency_key", "cents", "nano_usd", "created_at")


def upgrade() -> None:
    # As text, since Alembic would rebuild the table on SQLite to add a constraint. A constant default is kept
    # in the catalog by both databases, so existing rows are not touched.
    op.execute(
        "ALTER TABLE workspaces ADD COLUMN collected_nano_usd BIGINT DEFAULT 0 NOT NULL "
        "CONSTRAINT ck_workspaces_collected CHECK (collected_nano_usd BETWEEN 0 AND posted_nano_usd)"
    )
    _create_collections()
    _create_audit_log()
    _forbid("collections", "no_delete", ("DELETE",), "a collection is voided, never deleted")
    _forbid("collections", "fixed", (f"UPDATE OF {', '.join(FIXED)}",), "a collection keeps its amount")
    _forbid("audit_log", "no_change", ("UPDATE", "DELETE"), "audit_log is append-only")


def _time(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _create_collections() -> None:
    op.create_table(
        "collections",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("idempotency_key", sa.String(64), nullable=False),
        sa.Column("cents", sa.BigInteger, nullable=False),
        sa.Column("nano_usd", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("reference", sa.String(256)),
        sa.Column("note", sa.String(1024)),
        sa.Column("times_opened", sa.Integer, nullable=False),
        sa.Column("hook_attempts", sa.Integer, nullable=False),
        _time("hook_due_at", nullable=True),
        _time("handed_over_at", nullable=True),
        _time("created_at"),
        _time("updated_at"),
        _time("closed_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_collections_workspace_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_collections_idempotency_key"),
        sa.CheckConstraint("cents > 0 AND nano_usd = cents * 10000000", name="ck_collections_amount"),
        sa.CheckConstraint("state IN ('open', 'paid', 'failed', 'void')", name="ck_collections_state"),
        sa.CheckConstraint(
            "(state IN ('paid', 'void')) = (closed_at IS NOT NULL)", name="ck_collections_closed"
        ),
    )
    op.create_index("ix_collections_workspace_id", "collections", ["workspace_id", "created_at"])
    op.create_index("ix_collections_state", "collections", ["state", "created_at"])


def _create_audit_log() -> None:
    # SQLite counts up only a primary key that is an INTEGER.
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit_log",
        sa.Column("id", number, autoincrement=True, nullable=False),
        _time("at"),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32)),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])


def _forbid(table: str, name: str, verbs: tuple[str, ...], message: str) -> None:
    """Below every code path: the database itself refuses."""
    if op.get_bind().dialect.name == "sqlite":
        for number, verb in enumerate(verbs):
            op.execute(
                f"CREATE TRIGGER {table}_{name}_{number} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
        return
    if "DELETE" in verbs:
        verbs = (*verbs, "TRUNCATE")
    op.execute(
        f"CREATE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_{name} BEFORE {' OR '.join(verbs)} ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_{name}()"
    )
