"""What happened to an engine lately, in words that a change of acceptance can be held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from sqlalchemy import Connection, bindparam, select

from specscope_server.diagnosis.engine_evidence import Event
from specscope_server.diagnosis.facts import entries
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.values import unpacked_json

MAX_EVENTS: Final = 50
MAX_FIELDS: Final = 8
"""Fields of the configuration that one event names."""
DRAFT: Final = "draft weights"
TARGET: Final = "target weights"
_T = schema.engine_event.c

_NEWEST: Final = Prepared(
    select(_T.event_ns, _T.event, _T.process_uid, _T.weight_version, _T.detail, _T.config)
    .where(_T.engine_uid == bindparam("engine"), _T.event_ns >= bindparam("since"))
    .order_by(_T.event_ns.desc(), _T.process_uid, _T.event)
    .limit(MAX_EVENTS)
)


def engine_events(connection: Connection, engine_uid: str, since_ns: int) -> tuple[Event, ...]:
    """Return the newest :data:`MAX_EVENTS` events since ``since_ns``, oldest first.

    ``changed`` of an update names the weights of which a hash moved; of a repeated start (another
    configuration under the same launch) the fields that are others than in the event before.
    """
    found = _NEWEST.rows(connection, {"engine": engine_uid, "since": since_ns})
    told: list[Event] = []
    before: dict[str, Mapping[str, Any]] = {}
    for row in reversed(found):
        last, config = before.get(row.process_uid), unpacked_json(row.config)
        detail = unpacked_json(row.detail)
        changed = (*_weights(detail), *(() if last is None else _fields(last, config)))
        renamed = () if last is None or DRAFT not in changed else _renamed(last, config)
        before[row.process_uid] = config
        told.append(
            Event(row.event_ns / 1e9, row.event, row.process_uid, row.weight_version, changed, renamed)
        )
    return tuple(told)


def _weights(detail: Mapping[str, Any]) -> list[str]:
    names = detail.get("changed")
    if not isinstance(names, list):
        return []
    # As the tracer names tensors: ``draft 0: fc.weight``, ``target: model.norm.weight``.
    whose = {str(name).partition(" ")[0].rstrip(":") for name in cast("list[object]", names)}
    return [words for word, words in (("draft", DRAFT), ("target", TARGET)) if word in whose]


def _renamed(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the draft's tensors that come from names of a checkpoint that they did not come from before."""
    was = _sources(before)
    return tuple(name for name, names in _sources(now).items() if name in was and names - was[name])


def _sources(config: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the names that each of the draft's tensors came from; one of which none is told is left out."""
    found: dict[str, frozenset[str]] = {}
    for draft in entries(config, "weights", "drafts"):
        for tensor in entries(draft, "tensors"):
            told: object = tensor.get("from")
            if isinstance(told, list) and told:
                found[str(tensor.get("name"))] = frozenset(map(str, cast("list[object]", told)))
    return found


def _fields(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the fields that differ, but for the weights, whose change is told by itself."""
    names: list[str] = []
    for part in sorted((before.keys() | now.keys()) - {"weights", "differences"}):
        old, new = before.get(part), now.get(part)
        if isinstance(old, dict) and isinstance(new, dict):
            was, is_now = cast("Mapping[str, object]", old), cast("Mapping[str, object]", new)
            fields = sorted(was.keys() | is_now.keys())
            names += [f"{part}.{name}" for name in fields if was.get(name) != is_now.get(name)]
        elif old != new:
            names.append(part)
    return names[:MAX_FIELDS]
