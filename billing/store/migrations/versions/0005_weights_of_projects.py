"""How much of an engine each project is to have beside others."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # As text, since Alembic would rebuild the table on SQLite to add a constraint.
    op.execute(
        "ALTER TABLE projects ADD COLUMN weight INTEGER DEFAULT 1 NOT NULL "
        "CONSTRAINT ck_projects_weight CHECK (weight BETWEEN 1 AND 1000)"
    )
