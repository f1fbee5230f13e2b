"""A hash of each chat's token ids, and projects whose replies carry promises."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE usage_events ADD COLUMN tokens_sha256 VARCHAR(64)")
    op.execute("ALTER TABLE projects ADD COLUMN proof BOOLEAN DEFAULT FALSE NOT NULL")
