"""Tables of who may do what: users, API tokens, and the audit trail."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Identity, Index, Table

from specscope_server.store.schema_parts import (
    RowId,
    String,
    int_column,
    key_column,
    metadata,
    text_column,
)

user = Table(
    "user",
    metadata,
    key_column("name"),
    # Empty: of all workspaces.
    text_column("workspace"),
    text_column("role"),
    text_column("password"),
    # Signs the user's cookies: another one ends every session.
    text_column("session_key"),
    int_column("created_ns"),
    int_column("changed_ns"),
    int_column("signed_in_ns", None),
)

api_token = Table(
    "api_token",
    metadata,
    key_column("token_uid"),
    Column("workspace", String, ForeignKey("workspace.name", ondelete="CASCADE"), nullable=False),
    text_column("scopes"),
    text_column("name"),
    text_column("secret"),
    text_column("created_by"),
    int_column("created_ns"),
    int_column("used_ns", None),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    int_column("at_ns"),
    text_column("workspace"),
    text_column("who"),
    text_column("action"),
    text_column("what"),
    text_column("address"),
    Index("audit_by_time", "at_ns"),
)
