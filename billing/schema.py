"""The tables of accounts and ledger, as SQLAlchemy Core sees them; the migrations are what creates them."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
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
    UniqueConstraint("name"),
    CheckConstraint("posted_nano_usd >= 0", name="posted"),
    CheckConstraint("held_nano_usd >= 0", name="held"),
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
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    UniqueConstraint("workspace_id", "name"),
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

# An open hold is a row, and a closed one is none: the table stays as small as what is in flight.
holds = Table(
    "holds",
    metadata,
    Column("event_id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("amount_nano_usd", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
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
    ForeignKeyConstraint(["pricing_version", "model_id"], ["prices.version", "prices.model_id"]),
    CheckConstraint("cost_nano_usd >= 0", name="cost"),
    Index("ix_usage_events_workspace_id", "workspace_id", "settled_at"),
)
