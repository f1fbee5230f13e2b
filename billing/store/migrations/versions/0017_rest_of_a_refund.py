"""A mark on refunds that were asked for as all that is left: the same key with an amount is another request."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "adjustments", sa.Column("refunds_rest", sa.Boolean, nullable=False, server_default=sa.false())
    )
