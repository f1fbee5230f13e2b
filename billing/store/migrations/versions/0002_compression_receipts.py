"""The receipt of a compression beside its usage: what a project stores of what it compressed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("usage_events", sa.Column("receipt", sa.Text))
