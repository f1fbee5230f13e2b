"""Webhooks: endpoints, events with their deliveries, and which percentages of limits were reached."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_endpoints()
    _create_events()
    _create_deliveries()
    _create_alerts()


def _create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32)),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("old_secret", sa.LargeBinary),
        sa.Column("old_secret_until", sa.Double, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("state_reason", sa.String(256)),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(32)),
        sa.Column("leased_until", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name="fk_webhook_endpoints_workspace_id"
        ),
        sa.CheckConstraint("state IN ('active', 'disabled', 'removed')", name="ck_webhook_endpoints_state"),
    )
    op.create_index("ix_webhook_endpoints_workspace_id", "webhook_endpoints", ["workspace_id"])


def _create_events() -> None:
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32)),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_events"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_webhook_events_workspace_id"),
    )
    op.create_index("ix_webhook_events_created_at", "webhook_events", ["created_at"])


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("endpoint_id", sa.String(32), nullable=False),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("give_up_at", sa.Double, nullable=False),
        sa.Column("last_tried_at", sa.Double),
        sa.Column("last_status", sa.Integer),
        sa.Column("last_error", sa.String(256)),
        sa.Column("delivered_at", sa.Double),
        sa.PrimaryKeyConstraint("event_id", "endpoint_id", name="pk_webhook_deliveries"),
        sa.ForeignKeyConstraint(["event_id"], ["webhook_events.id"], name="fk_webhook_deliveries_event_id"),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["webhook_endpoints.id"], name="fk_webhook_deliveries_endpoint_id"
        ),
        sa.CheckConstraint(
            "state IN ('waiting', 'delivered', 'failed', 'cancelled')", name="ck_webhook_deliveries_state"
        ),
    )
    by_endpoint = ["endpoint_id", "state", "due_at"]
    op.create_index("ix_webhook_deliveries_endpoint_id", "webhook_deliveries", by_endpoint)
    op.create_index("ix_webhook_deliveries_state", "webhook_deliveries", ["state", "due_at"])


def _create_alerts() -> None:
    op.create_table(
        "limit_alerts",
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("span", sa.String(8), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("limit_nano_usd", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("percent", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("reached_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace_id", "key_id", "span", "month", "limit_nano_usd", "percent", name="pk_limit_alerts"
        ),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_limit_alerts_workspace_id"),
    )
