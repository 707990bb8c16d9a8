"""What an engine's event was about, beside the whole configuration, so that events are listed cheaply."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("engine_event", sa.Column("weight_version", sa.BigInteger(), nullable=True))
    op.add_column("engine_event", sa.Column("detail", sa.Text(), server_default="{}", nullable=False))


def downgrade() -> None:
    op.drop_column("engine_event", "detail")
    op.drop_column("engine_event", "weight_version")
