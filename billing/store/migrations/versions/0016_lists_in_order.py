"""Indexes by which lists of accounts, collections, adjustments and webhooks are read in the order in which they were
made, page by page."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLES = ("workspaces", "projects", "api_keys", "collections", "adjustments", "webhook_endpoints")


def upgrade() -> None:
    for table in TABLES:
        op.create_index(f"ix_{table}_created_at", table, ["created_at", "id"])
