"""View model of an engine's weights: what is odd, how draft and target differ, events, every tensor.

Everything here came from an engine and is hostile: a part that is not what it should be is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final, cast

from specscope import convention as c

from specscope_server.store.model import EngineEvent, EngineRow
from specscope_server.web.format import DASH, count, seconds, significant

CHECK: Final = "check"
"""Level of what a person should look at, as the tracer tells it."""

LABELS: Final[Mapping[str, str]] = {
    c.EVENT_START: "start",
    c.EVENT_WEIGHT_UPDATE: "weight update",
    c.EVENT_LORA_LOAD: "LoRA adapter loaded",
    c.EVENT_LORA_UNLOAD: "LoRA adapter unloaded",
    c.EVENT_MEMORY_RELEASE: "memory released",
    c.EVENT_MEMORY_RESUME: "memory taken back",
}
_STATUS_TONES: Final = {"missing": "bad", "partly loaded": "bad", "shared": "off", "not observed": "lost"}
_TOLD: Final = ("how", "lora_name", "model_path", "selector", "weight_version")
_NAMES: Final = 5
"""Names of a list that stand in a sentence."""

MAX_ROWS: Final = 2_000
"""Rows of one list that are shown: the document may hold 80,000 empty ones."""
MAX_DRAFTS: Final = 16
MAX_NUMBER: Final = 10**15
"""Largest count or duration that is shown; what is larger, or below 0, is nothing an engine counted."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OddityLine:
    """One oddity: its tone, kind, the tensor or name, and a sentence."""

    tone: str
    kind: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class TensorLine:
    """One parameter of a draft as text."""

    name: str
    shape: str
    dtype: str
    status: str
    tone: str
    origin: str
    mean: str
    std: str
    ratio: str
    max_abs: str
    hash: str
    sampled: str


@dataclass(frozen=True, slots=True)
class DraftView:
    """One draft model."""

    model: str
    sentences: tuple[str, ...]
    unseen: str
    oddities: tuple[OddityLine, ...]
    tensors: tuple[TensorLine, ...]
    left_out: int
    lost: int
    """Tensors that are not, or not wholly, from a checkpoint."""
    whole: bool
    """It was told what was loaded and what was left over: without that nothing can be called complete."""


@dataclass(frozen=True, slots=True)
class DifferenceLine:
    """One difference of checkpoint, draft and target."""

    tone: str
    field: str
    checkpoint: str
    draft: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event, as one or several processes told it."""

    at: datetime
    label: str
    version: str
    processes: int
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class WeightsView:
    """The section; ``none`` says why there is nothing to show, empty when there is."""

    none: str
    drafts: tuple[DraftView, ...]
    differences: tuple[DifferenceLine, ...]
    events: tuple[EventLine, ...]
    tone: str
    summary: str


def build(row: EngineRow) -> WeightsView:
    """Return the section of an engine."""
    told = _mapping(row.config.get("weights"))
    drafts = tuple(_draft(one) for one in _mappings(told.get("drafts"))[:MAX_DRAFTS])
    found = tuple(_differences(_mappings(row.config.get("differences"))[:MAX_ROWS]))
    checks = sum(1 for draft in drafts for one in draft.oddities if one.tone == "bad")
    checks = checks or sum(draft.lost for draft in drafts)
    checks += sum(1 for one in found if one.tone == "bad")
    return WeightsView(
        none=_none(told, drafts, row.speculation),
        drafts=drafts,
        differences=found,
        events=tuple(_events(row.events)),
        tone=_tone(drafts, checks),
        summary=_summary(drafts, checks),
    )


def _none(told: Document, drafts: Sequence[DraftView], speculation: bool | None) -> str:
    if not told:
        return "The tracer told nothing of weights."
    if _text(told.get("error")):
        return f"The tracer could not read them: {_text(told.get('error'))}"
    if not drafts:
        return (
            "Speculation is off: there is no draft." if speculation is False else "There is no draft model."
        )
    return ""


def _tone(drafts: Sequence[DraftView], checks: int) -> str:
    if checks:
        return "bad"
    return "lost" if not drafts or not all(draft.whole for draft in drafts) else "ok"


def _summary(drafts: Sequence[DraftView], checks: int) -> str:
    if checks:
        return f"{checks} to check"
    if not drafts:
        return "nothing told"
    if any(draft.unseen for draft in drafts):
        return "load not observed"
    return "nothing missing, nothing unused" if all(draft.whole for draft in drafts) else "load not told"


def _draft(told: Document) -> DraftView:
    tensors = _mappings(told.get("tensors"))
    names, statuses = _mapping(told.get("names")), _mapping(told.get("statuses"))
    observed = told.get("observed") is True
    lost = sum(_whole(number) for name, number in statuses.items() if _STATUS_TONES.get(name) == "bad")
    whole = observed and all(_count(names.get(name)) != DASH for name in ("all", "loaded", "unused_count"))
    sentences: list[str] = []
    if observed:
        own = told.get("own_checkpoint") is not False
        parts = [f"{_count(names.get('loaded'))} of the checkpoint's {_count(names.get('all'))} names loaded"]
        parts += [f"used otherwise: {_list(names.get('used'))}"] if names.get("used") else []
        unused = _count(names.get("unused_count"))
        parts.append(f"{unused} unused" + ("" if own else " (it is the target's checkpoint)"))
        parts += [f"skipped on purpose: {_list(names.get('ignored'))}"] if names.get("ignored") else []
        sentences.append("; ".join(parts) + ".")
    counts = ", ".join(f"{_count(number)} {name}" for name, number in statuses.items())
    sentences += [f"Tensors: {counts}."] if counts else []
    used = _mapping(told.get("map"))
    if used:
        stale = "" if used.get("in_use") is not False else "; the engine maps by other values than these"
        sentences.append(
            f"Token map: {_count(used.get('rows'))} ids from {_count(used.get('least'))} to "
            f"{_count(used.get('largest'))}{stale}."
        )
    return DraftView(
        model=_text(told.get("model")),
        sentences=tuple(sentences),
        unseen="" if observed else _text(told.get("reason")) or "no reason given",
        oddities=tuple(
            OddityLine(_level(one), _text(one.get("kind")), _text(one.get("name")), _text(one.get("text")))
            for one in _mappings(told.get("oddities"))[:MAX_ROWS]
        ),
        tensors=tuple(_tensor(one) for one in tensors[:MAX_ROWS]),
        left_out=_whole(told.get("tensors_left_out")) + len(tensors[MAX_ROWS:]),
        lost=lost,
        whole=whole,
    )


def _tensor(told: Document) -> TensorLine:
    status, origin = _text(told.get("status")), _list(told.get("from"))
    if told.get("shared_with"):
        origin = f"the target's {_text(told.get('shared_with'))}"
    elif told.get("equal_to"):
        origin = f"{origin or DASH} (holds the same as the target's {_text(told.get('equal_to'))})"
    elif isinstance(told.get("filled"), float):
        origin = f"{origin} ({100 * float(told['filled']):.3g} % of it)"
    return TensorLine(
        name=_text(told.get("name")),
        shape=" × ".join(_text(n) for n in _values(told.get("shape"))),
        dtype=_text(told.get("dtype")),
        status=status,
        tone=_STATUS_TONES.get(status, "ok"),
        origin=origin or DASH,
        mean=_number(told.get("mean")),
        std=_number(told.get("std")),
        ratio=_number(told.get("std_to_init")),
        max_abs=_number(told.get("max_abs")),
        hash=_text(told.get("hash")) or DASH,
        sampled="" if told.get("read") is None else f"{_count(told.get('read'))} values read",
    )


def _differences(told: Sequence[Document]) -> Iterator[DifferenceLine]:
    for one in told:
        yield DifferenceLine(
            tone=_level(one),
            field=_text(one.get("field")),
            checkpoint=_shown(one.get("checkpoint")),
            draft=_shown(one.get("draft")),
            target=_shown(one.get("target")),
            why=_text(one.get("why")),
        )


def _events(events: Sequence[EngineEvent]) -> Iterator[EventLine]:
    """Yield one line an event: neighbours of the same kind and version are the ranks that told of it."""
    for _, group in groupby(events, key=lambda one: (one.event, one.weight_version)):
        told = list(group)
        newest = told[0]
        processes = len({one.process_uid for one in told})
        for one in (newest,) if processes == len(told) else told:
            yield EventLine(
                at=one.at,
                label=LABELS.get(one.event, one.event),
                version=count(one.weight_version),
                processes=processes if one is newest and processes == len(told) else 1,
                tone="bad" if one.detail.get("success") is False else "ok",
                text=_event_text(one.detail),
            )


def _event_text(detail: Document) -> str:
    parts = [_text(detail.get(name)) for name in _TOLD if _text(detail.get(name))]
    if detail.get("tags"):
        parts.append(_list(detail.get("tags")))
    if detail.get("success") is False:
        parts.append(f"failed: {_text(detail.get('message')) or 'no reason given'}")
    if _count(detail.get("changed_count")) != DASH:
        number = _whole(detail.get("changed_count"))
        names = f": {_list(detail.get('changed'))}" if number else ""
        parts.append(f"{number:,} of the tensors read changed{names}")
    for load in _mappings(detail.get("draft_loads")):
        if _whole(load.get("unused_count")):
            parts.append(f"offered to the draft and not used: {_list(load.get('unused'))}")
    took = detail.get("seconds")
    if isinstance(took, float | int) and not isinstance(took, bool) and 0 <= took <= MAX_NUMBER:
        parts.append(f"took {seconds(float(took))}")
    return "; ".join(parts)


def _level(told: Document) -> str:
    return "bad" if told.get("level") == CHECK else "off"


def _mapping(value: object) -> Document:
    return cast("Document", value) if isinstance(value, Mapping) else {}


def _values(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _mappings(value: object) -> list[Document]:
    return [cast("Document", one) for one in _values(value) if isinstance(one, Mapping)]


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def _shown(value: object) -> str:
    return DASH if value is None else _text(value)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER else 0


def _count(value: object) -> str:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER
    return count(cast("int", value)) if known else DASH


def _number(value: object) -> str:
    if isinstance(value, int) and (isinstance(value, bool) or abs(value) > MAX_NUMBER):
        return DASH  # a whole number in JSON may have thousands of digits, more than a float takes
    return significant(value) if isinstance(value, float | int) else DASH


def _list(value: object) -> str:
    names = [_text(one) for one in _values(value)]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
