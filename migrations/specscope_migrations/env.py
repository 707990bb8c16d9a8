"""Runs the migrations on the connection that the server (or a test) hands over, in its transaction."""

from __future__ import annotations

from alembic import context

_given = context.config.attributes
context.configure(
    connection=_given["connection"],
    target_metadata=_given["metadata"],
    version_table=_given["version_table"],
)
with context.begin_transaction():
    context.run_migrations()
