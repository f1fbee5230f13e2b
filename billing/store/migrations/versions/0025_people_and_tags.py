"""Persons and tags of usage, and what projects ask of their requests' naming."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE usage_events ADD COLUMN person VARCHAR(32)")
    op.execute("ALTER TABLE usage_events ADD COLUMN tags TEXT")
    op.execute("ALTER TABLE projects ADD COLUMN person_required BOOLEAN DEFAULT FALSE NOT NULL")
    op.execute("ALTER TABLE projects ADD COLUMN allowed_tags TEXT")
