"""Exports of a token that is bound to a workspace go there, whatever they say."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message
from specscope import convention as c

from specscope_server.ingest.refusal import Refusal
from specscope_server.ingest.resource import DEFAULT
from specscope_server.ingest.signals import Signal

_SHOWN: Final = 60


def bind(message: Message, signal: Signal, workspace: str) -> None:
    """Have every resource of an export name ``workspace``.

    A tracer that was told no workspace names the default one: that is no other workspace.

    Raises:
        Refusal: 403, a resource names another workspace.
    """
    for one in getattr(message, signal.levels[0]):
        attributes = one.resource.attributes
        named = [found for found in attributes if found.key == c.WORKSPACE]
        for found in named:
            told = _text(found)
            if told not in (workspace, DEFAULT, ""):
                raise Refusal(
                    403,
                    f"this token sends to workspace {workspace!r}, not to {told[:_SHOWN]!r}: leave "
                    "SPECSCOPE_WORKSPACE out, or use a token of that workspace",
                )
        if len(named) == 1 and _text(named[0]) == workspace:
            continue
        kept = [found for found in attributes if found.key != c.WORKSPACE]
        del attributes[:]
        attributes.extend(kept)
        added = attributes.add()
        added.key = c.WORKSPACE
        added.value.string_value = workspace


def _text(attribute: Any) -> str:
    """Return an attribute's text; one of another kind is told as something that is no workspace."""
    which = attribute.value.WhichOneof("value")
    if which is None:
        return ""
    return attribute.value.string_value if which == "string_value" else f"({which})"
