"""The tables of files and batches, as SQLAlchemy Core sees them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    true,
)

from billing.store.stored_types import metadata

# Files of projects, whose contents are on disk. Until one is `complete`, it is being written. Times are the database's
# clock, in seconds since 1970, here and in the tables below.
batch_files = Table(
    "batch_files",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("project_id", String(32), ForeignKey("projects.id"), nullable=False),
    Column("filename", String(255), nullable=False),
    Column("purpose", String(16), nullable=False),
    # Of one that is being written: what is set aside for it.
    Column("bytes", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    # The file store that has its content; empty for one from before there were stores, until its folder takes it in.
    Column("store", String(32), nullable=False, server_default=""),
    # Whether it is in `batch_file_totals`.
    Column("counted", Boolean, nullable=False, server_default=true()),
    Index("ix_batch_files_project_id", "project_id", "created_at", "id"),
    Index("ix_batch_files_expires_at", "expires_at"),
)

# Folders with files, each by the id that is kept in it, and when a server last said that it reaches it.
file_stores = Table(
    "file_stores",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("seen_at", Double, nullable=False),
)

# The sums of `batch_files` of each project, so that its bounds are one conditional statement.
batch_file_totals = Table(
    "batch_file_totals",
    metadata,
    Column("project_id", String(32), ForeignKey("projects.id"), primary_key=True),
    Column("files", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("project_id", String(32), ForeignKey("projects.id"), nullable=False),
    # Its lines run, and are charged, in the name of the key that made it.
    Column("key_id", String(16), ForeignKey("api_keys.id"), nullable=False),
    Column("input_file_id", String(64), nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("completion_window", String(16), nullable=False),
    Column("metadata_json", Text),
    # The prices in force when it was made, and the millionths of them that its lines are charged.
    Column("pricing_version", Integer, nullable=False),
    Column("price_ppm", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    # What `status` becomes once its files are written.
    Column("ends_as", String(16), nullable=False),
    # Who validates it or writes its files now, and until when nobody else may.
    Column("worker", String(32)),
    Column("leased_until", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("in_progress_at", Double),
    Column("finalizing_at", Double),
    Column("completed_at", Double),
    Column("failed_at", Double),
    Column("cancelling_at", Double),
    Column("cancelled_at", Double),
    Column("expired_at", Double),
    # Set when its files are written; before that its lines are counted.
    Column("lines", Integer, nullable=False),
    Column("lines_completed", Integer, nullable=False),
    Column("lines_failed", Integer, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    # Why it failed, as JSON.
    Column("errors", Text),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    # Whether its lines were deleted.
    Column("cleared", Boolean, nullable=False),
    # The file store that has its input, and the deployment whose servers run it; empty as in `batch_files`.
    Column("store", String(32), nullable=False, server_default=""),
    Column("deployment", String(64), nullable=False, server_default=""),
    Index("ix_batches_project_id", "project_id", "created_at", "id"),
    Index("ix_batches_cleared", "cleared", "status"),
    Index("ix_batches_input_file_id", "input_file_id"),
)

# The lines of batches whose files are not written yet: where each is in the input file, and what became of it.
batch_lines = Table(
    "batch_lines",
    metadata,
    Column("batch_id", String(64), ForeignKey("batches.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("custom_id", String(512), nullable=False),
    Column("offset_bytes", BigInteger, nullable=False),
    Column("length_bytes", Integer, nullable=False),
    # `waiting`, `completed`, `failed`, or, of one that is not run any more, `cancelled` or `expired`.
    Column("state", String(16), nullable=False),
    # Names one attempt, which alone may end the line; nobody else begins one before `claimable_at`.
    Column("claim", String(32)),
    Column("claimable_at", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    # What it used, as its usage event has it.
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    # Its line of the output or error file, as JSON.
    Column("result", Text),
    UniqueConstraint("batch_id", "custom_id"),
    Index("ix_batch_lines_state", "batch_id", "state", "number"),
)
