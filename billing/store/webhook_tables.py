"""The tables of webhooks: who is told, what there was to tell, and what became of each telling."""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from billing.store.stored_types import metadata

# Receivers. Times are the database's clock, in seconds since 1970, here and in the tables below.
webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", String(32), primary_key=True),
    # NULL: of the whole service.
    Column("workspace_id", String(32), ForeignKey("workspaces.id")),
    Column("url", String(2048), nullable=False),
    # A JSON list of types; an empty one is all of them.
    Column("events", Text, nullable=False),
    # Sealed with a key derived from the pepper. NULL once the endpoint is removed.
    Column("secret", LargeBinary),
    # What was the secret until the last rotation: it signs too, for a while.
    Column("old_secret", LargeBinary),
    Column("old_secret_until", Double, nullable=False),
    Column("state", String(8), nullable=False),
    Column("state_reason", String(256)),
    # Tries in a row that failed.
    Column("failures", Integer, nullable=False),
    # Who sends to it now, and until when nobody else may.
    Column("worker", String(32)),
    Column("leased_until", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_webhook_endpoints_workspace_id", "workspace_id"),
    Index("ix_webhook_endpoints_created_at", "created_at", "id"),
)

# Only events that somebody is told of have a row.
webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("type", String(32), nullable=False),
    Column("workspace_id", String(32), ForeignKey("workspaces.id")),
    # What is sent, byte for byte at every try.
    Column("payload", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_webhook_events_created_at", "created_at"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("event_id", String(32), ForeignKey("webhook_events.id"), primary_key=True),
    Column("endpoint_id", String(32), ForeignKey("webhook_endpoints.id"), primary_key=True),
    Column("state", String(9), nullable=False),
    Column("attempts", Integer, nullable=False),
    # Not tried before the first, and given up at a failure after the second.
    Column("due_at", Double, nullable=False),
    Column("give_up_at", Double, nullable=False),
    Column("last_tried_at", Double),
    # The receiver's HTTP status, where it answered.
    Column("last_status", Integer),
    Column("last_error", String(256)),
    Column("delivered_at", Double),
    Index("ix_webhook_deliveries_endpoint_id", "endpoint_id", "state", "due_at"),
    Index("ix_webhook_deliveries_state", "state", "due_at"),
)

# Which percentages of which limits were reached: a row is made once, and so is its event. `old_alerts` deletes them.
limit_alerts = Table(
    "limit_alerts",
    metadata,
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), primary_key=True),
    # Empty for a limit of the workspace.
    Column("key_id", String(16), primary_key=True),
    # `total` or `month`, and which month; empty for `total`.
    Column("span", String(8), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("limit_nano_usd", BigInteger, primary_key=True, autoincrement=False),
    Column("percent", Integer, primary_key=True, autoincrement=False),
    Column("reached_at", Double, nullable=False),
)
