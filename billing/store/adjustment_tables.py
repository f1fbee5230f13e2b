"""The table of credits, adjustments and refunds, as SQLAlchemy Core sees it."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    String,
    Table,
    UniqueConstraint,
    false,
)

from billing.store.stored_types import UtcDateTime, metadata

adjustments = Table(
    "adjustments",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    # Added to what is owed: below zero for a credit and a refund.
    Column("nano_usd", BigInteger, nullable=False),
    # Of a refund: the event, and whose it is. Events may be archived, so the database does not hold them together.
    Column("event_id", String(32)),
    Column("project_id", String(32)),
    Column("key_id", String(16)),
    # Both by the database's clock.
    Column("month", String(7), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("reason", String(1024), nullable=False),
    Column("idempotency_key", String(128), nullable=False),
    Column("refunds_rest", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("workspace_id", "idempotency_key"),
    CheckConstraint(
        "kind IN ('credit', 'adjustment', 'refund') AND nano_usd <> 0 AND (nano_usd < 0 OR kind = 'adjustment')",
        name="amount",
    ),
    CheckConstraint("(kind = 'refund') = (event_id IS NOT NULL)", name="event"),
    Index("ix_adjustments_workspace_id", "workspace_id", "created_at", "id"),
    Index("ix_adjustments_event_id", "event_id"),
    Index("ix_adjustments_created_at", "created_at", "id"),
)
