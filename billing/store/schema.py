"""Tables of accounts and ledger, as SQLAlchemy Core sees them; the migrations create them, with checks and triggers.

Those of files and batches, in the same metadata, are in `batch_tables`; those of sums of events and of archived months
in `rollup_tables`, of webhooks in `webhook_tables`, of budgets in `budget_tables`, and of the transparency log in
`log_tables`.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from billing.caller import RATES
from billing.store import batch_tables as batch_tables
from billing.store import budget_tables as budget_tables
from billing.store import log_tables as log_tables
from billing.store import rollup_tables as rollup_tables
from billing.store import webhook_tables as webhook_tables
from billing.store.stored_types import UtcDateTime as UtcDateTime
from billing.store.stored_types import metadata as metadata

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("billing_enabled", Boolean, nullable=False),
    Column("spend_limit_nano_usd", BigInteger),
    Column("monthly_limit_nano_usd", BigInteger),
    # Sums of usage_events, adjustments and holds, kept here so that a hold is one conditional statement.
    Column("posted_nano_usd", BigInteger, nullable=False),
    Column("held_nano_usd", BigInteger, nullable=False),
    Column("month", String(7), nullable=False),
    # Less what was credited in it.
    Column("month_posted_nano_usd", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    # The part of `posted` that is in collections that are not void.
    Column("collected_nano_usd", BigInteger, nullable=False, server_default="0"),
    # Credits, refunds and downward adjustments: with `posted`, which has the upward ones, the sum of `adjustments`.
    Column("credited_nano_usd", BigInteger, nullable=False, server_default="0"),
    # Whether a key of it has a spend limit: only then a request's money is looked for on a key's row.
    Column("has_limited_keys", Boolean, nullable=False, server_default=false()),
    # Of its budgets' periods, and whether it has a budget: only then one is looked for.
    Column("time_zone", String(64), nullable=False, server_default="UTC"),
    Column("has_budgets", Boolean, nullable=False, server_default=false()),
    *(Column(name, BigInteger) for name in RATES),
    UniqueConstraint("name"),
    Index("ix_workspaces_created_at", "created_at", "id"),
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("metered", Boolean, nullable=False),
    *(Column(name, BigInteger) for name in RATES),
    Column("weight", Integer, nullable=False, server_default="1"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    # How its chats are compressed unless they say so themselves, as JSON. NULL: not at all.
    Column("compression", Text),
    # Whether its replies carry promises that their usage will be in the log.
    Column("proof", Boolean, nullable=False, server_default=false()),
    # Whether its requests have to name a person, and the tags that they may name, with commas between. NULL: all.
    Column("person_required", Boolean, nullable=False, server_default=false()),
    Column("allowed_tags", Text),
    # Limits of `*`, each person, and by tag, as JSON. NULL: none.
    Column("label_rates", Text),
    UniqueConstraint("workspace_id", "name"),
    Index("ix_projects_created_at", "created_at", "id"),
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
    # By the database's clock, in seconds since 1970.
    Column("expires_at", Double),
    Column("last_used_at", Double),
    # Lists of names as JSON. NULL: all.
    Column("allowed_models", Text),
    Column("allowed_routes", Text),
    # Those of rotated keys are on the row of the first of them, which `budget_key_id` names.
    *(Column(name, BigInteger) for name in RATES),
    Column("spend_limit_nano_usd", BigInteger),
    Column("monthly_limit_nano_usd", BigInteger),
    # Of a key with a spend limit, as on its workspace's row. Without one `month` is NULL, and nothing is counted here.
    Column("posted_nano_usd", BigInteger, nullable=False, server_default="0"),
    Column("held_nano_usd", BigInteger, nullable=False, server_default="0"),
    Column("month", String(7)),
    Column("month_posted_nano_usd", BigInteger, nullable=False, server_default="0"),
    Column("budget_key_id", String(16)),
    Index("ix_api_keys_project_id", "project_id"),
    Index("ix_api_keys_created_at", "created_at", "id"),
)

# As `workspace_months`, of keys with a spend limit.
key_months = Table(
    "key_months",
    metadata,
    Column("key_id", String(16), ForeignKey("api_keys.id"), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("posted_nano_usd", BigInteger, nullable=False),
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
    # NULL: cached input costs what input costs.
    Column("cached_input_micro_usd_per_mtok", BigInteger),
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
    # NULL in holds of releases whose keys had no limits.
    Column("key_id", String(16)),
    # What it is counted by: ids of `budget_counters`, as JSON. NULL: none.
    Column("budgets", Text),
    Index("ix_holds_created_at", "created_at"),
)

_OF_CONVERSATIONS: Any = dict.fromkeys(("sqlite_where", "postgresql_where"), text("conversation IS NOT NULL"))
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
    # For a chat with compression: the uncompressed prompt's tokens, how many of them would have been cached, the gross
    # saving, and the charge for the compression, which is a separate event.
    Column("original_tokens", BigInteger),
    Column("original_cached_tokens", BigInteger),
    Column("saved_nano_usd", BigInteger, nullable=False, server_default="0"),
    Column("compression_nano_usd", BigInteger, nullable=False, server_default="0"),
    # `applied`, `skipped`, `failed` or `holdout`.
    Column("compression", String(16)),
    # A keyed hash of the conversation's start, where it takes part in a comparison with held-out ones.
    Column("conversation", String(32)),
    # The other event of the same request: of a chat, its compression's, and of that the chat's.
    Column("paired_with", String(32)),
    # Millionths of the listed prices that were asked: less than all of them for a line of a batch.
    Column("price_ppm", Integer, nullable=False, server_default="1000000"),
    # What was asked: `chat`, `embeddings`, `batch:chat`, `flex:chat`, … NULL in older rows.
    Column("route", String(32)),
    # Of a chat: a hash of the token ids that its engine counted, with its tokenizer and template.
    Column("tokens_sha256", String(64)),
    # As in `holds`: what it was charged to.
    Column("budgets", Text),
    # Whom and what it is for: a keyed hash, and tags with commas between.
    Column("person", String(32)),
    Column("tags", Text),
    ForeignKeyConstraint(["pricing_version", "model_id"], ["prices.version", "prices.model_id"]),
    Index("ix_usage_events_workspace_id", "workspace_id", "settled_at"),
    Index("ix_usage_events_conversation", "workspace_id", "month", **_OF_CONVERSATIONS),
)

# Chats whose reply was scored again under the prompt as it was before compression. No money hangs on them.
preservation_checks = Table(
    "preservation_checks",
    metadata,
    # The chat's usage event, which may be archived before this row is deleted.
    Column("event_id", String(32), primary_key=True),
    Column("request_id", String(128), nullable=False),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    Column("project_id", String(32), ForeignKey("projects.id"), nullable=False),
    Column("model_id", String(256), nullable=False),
    Column("compression_model_id", String(256), nullable=False),
    # When the chat was settled.
    Column("settled_at", UtcDateTime, nullable=False),
    # Of the blocks that were compressed, in their alphabetical order with a `+` between two.
    Column("kinds", String(64), nullable=False),
    # What was asked for: one of them, or neither where the compression model's own ratio was taken.
    Column("target_ratio", Double),
    Column("keep", Double),
    # The prompts as the engine reads them.
    Column("original_tokens", BigInteger, nullable=False),
    Column("sent_tokens", BigInteger, nullable=False),
    # Tokens of the reply that were scored, and of these the ones where both prompts have the same likeliest token.
    Column("scored_tokens", Integer, nullable=False),
    Column("agreeing_tokens", Integer, nullable=False),
    # The mean over them of their log probability after the sent prompt less that after the whole one.
    Column("nats_per_token", Double, nullable=False),
    Index("ix_preservation_checks_workspace_id", "workspace_id", "settled_at"),
    Index("ix_preservation_checks_project_id", "project_id", "settled_at"),
    Index("ix_preservation_checks_settled_at", "settled_at"),
)

# The size of projects' compressed chats, where a bound of what that changes decides it: the account of the samples.
preservation_sizes = Table(
    "preservation_sizes",
    metadata,
    Column("project_id", String(32), ForeignKey("projects.id"), primary_key=True),
    # The project's compression for which the account was kept; with another one it begins anew.
    Column("compression", Text, nullable=False),
    # On the ladder of sizes: where chats are, and where the account is.
    Column("step", Double, nullable=False),
    Column("position", Double, nullable=False),
    # Of the samples: how many, their sum, and the squares of what each was off the mean before it.
    Column("samples", BigInteger, nullable=False),
    Column("total", Double, nullable=False),
    Column("squares", Double, nullable=False),
    Column("stepped_at", UtcDateTime),
)

# Requests that administrators sent with idempotency keys, for a day: digests alone, since answers hold secrets.
administrators_requests = Table(
    "administrators_requests",
    metadata,
    Column("actor", String(128), primary_key=True),
    Column("idempotency_key", String(128), primary_key=True),
    Column("digest", String(64), nullable=False),
    # By the database's clock, in seconds.
    Column("began_at", Double, nullable=False),
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
    Index("ix_collections_workspace_id", "workspace_id", "created_at"),
    Index("ix_collections_state", "state", "created_at"),
    Index("ix_collections_created_at", "created_at", "id"),
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

# Texts that a project asked to have kept, without the texts. Until one is `complete`, it is being written.
originals = Table(
    "originals",
    metadata,
    Column("project_id", String(32), ForeignKey("projects.id"), primary_key=True),
    Column("id", String(64), primary_key=True),
    # Names one writing of it, and salts the key of its chunks.
    Column("generation", String(32), nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("chunks", Integer, nullable=False),
    # What it counts against its project's bound.
    Column("bytes", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    # By the database's clock, in seconds since 1970.
    Column("expires_at", Double, nullable=False),
    UniqueConstraint("generation"),
    Index("ix_originals_expires_at", "expires_at"),
)

# The texts, encrypted in pieces small enough that no transaction is long.
original_chunks = Table(
    "original_chunks",
    metadata,
    Column("generation", String(32), ForeignKey("originals.generation"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("ciphertext", LargeBinary, nullable=False),
)

# The sum of `originals.bytes` of each project, so that its bound is one conditional statement.
original_totals = Table(
    "original_totals",
    metadata,
    Column("project_id", String(32), ForeignKey("projects.id"), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)


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
    Index("ix_adjustments_workspace_id", "workspace_id", "created_at", "id"),
    Index("ix_adjustments_event_id", "event_id"),
    Index("ix_adjustments_created_at", "created_at", "id"),
)
