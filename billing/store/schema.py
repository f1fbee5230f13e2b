"""The tables of accounts and ledger, as SQLAlchemy Core sees them; the migrations are what creates them."""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in, UTC out, also on SQLite, which keeps no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time must have a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("billing_enabled", Boolean, nullable=False),
    Column("spend_limit_nano_usd", BigInteger),
    Column("monthly_limit_nano_usd", BigInteger),
    # Sums of usage_events and of holds, kept here so that a hold is one conditional statement.
    Column("posted_nano_usd", BigInteger, nullable=False),
    Column("held_nano_usd", BigInteger, nullable=False),
    Column("month", String(7), nullable=False),
    Column("month_posted_nano_usd", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    # The part of `posted` that is in collections that are not void.
    Column("collected_nano_usd", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("name"),
    CheckConstraint("posted_nano_usd >= 0", name="posted"),
    CheckConstraint("held_nano_usd >= 0", name="held"),
    CheckConstraint("collected_nano_usd BETWEEN 0 AND posted_nano_usd", name="collected"),
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("metered", Boolean, nullable=False),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("max_in_flight", BigInteger),
    Column("weight", Integer, nullable=False, server_default="1"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    UniqueConstraint("workspace_id", "name"),
    CheckConstraint("weight BETWEEN 1 AND 1000", name="weight"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("project_id", String(32), ForeignKey("projects.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    Index("ix_api_keys_project_id", "project_id"),
)

price_lists = Table(
    "price_lists",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("created_at", UtcDateTime, nullable=False),
)

prices = Table(
    "prices",
    metadata,
    Column("version", Integer, ForeignKey("price_lists.version"), primary_key=True, autoincrement=False),
    Column("model_id", String(256), primary_key=True),
    Column("input_micro_usd_per_mtok", BigInteger, nullable=False),
    Column("output_micro_usd_per_mtok", BigInteger, nullable=False),
    Column("minimum_nano_usd", BigInteger, nullable=False),
)

# What was charged in the months that the workspace's row does not count now: a clock that jumps finds them again.
workspace_months = Table(
    "workspace_months",
    metadata,
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("posted_nano_usd", BigInteger, nullable=False),
)

# Only open holds have a row: the table stays as small as what is in flight.
holds = Table(
    "holds",
    metadata,
    Column("event_id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("amount_nano_usd", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # The server that it belongs to; empty in holds of releases without leases.
    Column("owner", String(32), nullable=False, server_default=""),
    # By the database's clock, in seconds since 1970: numbers compare alike on both databases.
    Column("expires_at", Double, nullable=False, server_default="0"),
    Index("ix_holds_created_at", "created_at"),
)

usage_events = Table(
    "usage_events",
    metadata,
    Column("event_id", String(32), primary_key=True),
    Column("request_id", String(128), nullable=False),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("project_id", String(32), ForeignKey("projects.id"), nullable=False),
    Column("key_id", String(16), ForeignKey("api_keys.id"), nullable=False),
    Column("model_id", String(256), nullable=False),
    Column("pricing_version", Integer, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("subtotal_nano_usd", BigInteger, nullable=False),
    Column("minimum_applied", Boolean, nullable=False),
    Column("cost_nano_usd", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("settled_at", UtcDateTime, nullable=False),
    Column("receipt", Text),
    # Taken while the ledger was away, under the stated allowance.
    Column("offline", Boolean, nullable=False, server_default=false()),
    # The part of the cost that was written off: it exceeded the hold, and the limits had no room for it.
    Column("written_off_nano_usd", BigInteger, nullable=False, server_default="0"),
    # The month that it was charged to, by the database's clock. In older rows: that of `settled_at`.
    Column("month", String(7)),
    ForeignKeyConstraint(["pricing_version", "model_id"], ["prices.version", "prices.model_id"]),
    CheckConstraint("cost_nano_usd >= 0", name="cost"),
    CheckConstraint("written_off_nano_usd BETWEEN 0 AND cost_nano_usd", name="written_off"),
    Index("ix_usage_events_workspace_id", "workspace_id", "settled_at"),
)

collections = Table(
    "collections",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("idempotency_key", String(64), nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("nano_usd", BigInteger, nullable=False),
    Column("state", String(8), nullable=False),
    Column("reference", String(256)),
    Column("note", String(1024)),
    Column("times_opened", Integer, nullable=False),
    Column("hook_attempts", Integer, nullable=False),
    # Until then the hook is not run for it: a server is running it now, or it failed recently.
    Column("hook_due_at", UtcDateTime),
    Column("handed_over_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    UniqueConstraint("idempotency_key"),
    CheckConstraint("cents > 0 AND nano_usd = cents * 10000000", name="amount"),
    CheckConstraint("state IN ('open', 'paid', 'failed', 'void')", name="state"),
    CheckConstraint("(state IN ('paid', 'void')) = (closed_at IS NOT NULL)", name="closed"),
    Index("ix_collections_workspace_id", "workspace_id", "created_at"),
    Index("ix_collections_state", "state", "created_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(32), nullable=False),
    Column("workspace_id", String(32)),
    Column("subject", String(64), nullable=False),
    Column("details", Text, nullable=False),
    Index("ix_audit_log_at", "at"),
)
