"""Requests by what they and their spans are called: the conditions of a search, built once.

Built anew for each search they would take longer than the database does.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select, union_all

from specscope_server.store import schema
from specscope_server.store.joined import MARGIN_NS, NONE
from specscope_server.store.model import RequestFilter
from specscope_server.store.values import clean

_LAST_CHARACTER: Final = "\U0010ffff"
_R = schema.request.alias("searched").c
_S = schema.span.c
_MINE = select(_R.uid).where(_R.workspace == bindparam("in_workspace"))


def wanted(text: str) -> str:
    """Return what is searched for where somebody typed ``text``."""
    return clean(text.strip())


def parameters(where: RequestFilter) -> dict[str, Any]:
    """Return what the conditions below are asked with."""
    text, response_id = wanted(where.text or ""), clean(where.response_id or "")
    low = text.lower()  # ids are lower-case hex
    return {
        "in_workspace": clean(where.workspace),
        "text": text,
        "text_end": text + _LAST_CHARACTER,
        "text_low": low,
        "text_low_end": low + _LAST_CHARACTER,
        "answer": response_id,
    }


def _beginning(column: ColumnElement[str], start: str) -> Select[Any]:
    return _MINE.where(column >= bindparam(start), column < bindparam(f"{start}_end"))


def _by_span(column: ColumnElement[str], name: str, same: ColumnElement[bool]) -> Select[Any]:
    """Return the requests joined to spans that are called ``name``, within the time of the request."""
    ended = func.coalesce(_R.end_ns, _R.last_received_ns)
    return (
        select(_R.uid)
        .join_from(schema.span, _R.uid.table, and_(_R.workspace == _S.workspace, same))
        .where(
            _S.workspace == bindparam("in_workspace"),
            column == bindparam(name),
            column != NONE,
            _S.start_ns <= ended + MARGIN_NS,
            _S.end_ns >= _R.arrival_ns - MARGIN_NS,
        )
    )


_TRACE = _R.trace_id == _S.trace_id
_REQUEST = and_(_S.request_id != NONE, _R.rid == _S.request_id)
_RID_IS_ANSWER = and_(_S.response_id != NONE, _R.rid == _S.response_id)
_ANSWER = and_(_R.response_id != NONE, _R.response_id == _S.response_id)

# Unions, because SQLite takes the indexes of an OR for dearer than one scan.
FOUND: Final = schema.request.c.uid.in_(
    union_all(
        _beginning(_R.rid, "text"),
        _beginning(_R.trace_id, "text_low"),
        _beginning(_R.uid, "text_low"),
        _beginning(_R.response_id, "text").where(_R.response_id != NONE),
        *(_by_span(_S.trace_id, "text_low", same) for same in (_REQUEST, _RID_IS_ANSWER, _ANSWER)),
        _by_span(_S.request_id, "text", _TRACE),
        *(_by_span(_S.response_id, "text", same) for same in (_TRACE, _REQUEST)),
    )
)
"""Whether a request's rid, response id, trace id or uid begins so, or a span of it is called so, whole."""

ANSWERED: Final = schema.request.c.uid.in_(
    union_all(
        _MINE.where(_R.response_id == bindparam("answer"), _R.response_id != NONE),
        _MINE.where(_R.rid == bindparam("answer")),
        *(_by_span(_S.response_id, "answer", same) for same in (_TRACE, _REQUEST)),
    )
)
"""Whether a request's answer has this id: told by us, by its spans, or the rid."""
