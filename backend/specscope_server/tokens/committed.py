"""How each committed token of a request came: accepted from the draft, or the target's own, and after what.

Takes verify steps as the store has them (:class:`specscope_server.store.model.RequestDetail`): what is absent
was not recorded. Engines may tell nonsense, so nothing here trusts a count or an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope.records import ROOT

ACCEPTED: Final = "accepted"
"""From the draft, at ``depth`` (from 1)."""
BONUS: Final = "bonus"
"""The target's own, behind a draft, or a branch of one, of which all was accepted."""
CORRECTION: Final = "correction"
"""The target's own, where it refused what the draft had said."""
UNDRAFTED: Final = "undrafted"
"""The target's own, in a step for which nothing was drafted."""
PREFILL: Final = "prefill"
"""The target's own, from a prefill."""
HOWS: Final = (ACCEPTED, BONUS, CORRECTION, UNDRAFTED, PREFILL)

LOST: Final = "lost"
NOT_RECORDED: Final = "not_recorded"
_PARTS: Final = 10_000
"""``draft_top1`` is in 1/10000."""


@dataclass(frozen=True, slots=True)
class Instead:
    """What the draft had said where the target said something else; ``None`` was not recorded.

    ``ids`` are the drafts refused there, several in a tree, the first of them first. ``favourite`` is the
    draft's probability of its favourite at that position (of a tree: on its best branch), ``rank`` the
    target's rank of the first one (from 1) and ``target_prob`` its probability of it; ``choice_prob`` is the
    draft's probability of what the target chose, and ``outside`` whether no draft can propose that.
    """

    ids: tuple[int, ...] | None
    favourite: float | None
    rank: int | None
    target_prob: float | None
    choice_prob: float | None
    outside: bool | None


@dataclass(frozen=True, slots=True)
class Token:
    """One committed token. ``step`` is the index of its verify step within the request, from 0."""

    id: int
    how: str
    step: int
    depth: int = 0
    instead: Instead | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Tokens are missing here: of ``steps`` verify steps that did not arrive, or tell no tokens."""

    why: str
    steps: int


def committed(steps: Sequence[Mapping[str, Any]]) -> list[Token | Gap]:
    """Return the tokens of steps in their order, with gaps where some are missing.

    Overshoot steps are left out: they ran after the request had ended.
    """
    found: list[Token | Gap] = []
    last: int | None = None
    for step in steps:
        index = int(step["index"])
        if step.get("overshoot"):
            last = index
            continue
        if last is not None and index > last + 1:
            found.append(Gap(LOST, index - last - 1))
        last = index
        if step.get("output_ids") is None:
            before = found[-1] if found else None
            if isinstance(before, Gap) and before.why == NOT_RECORDED:
                found[-1] = Gap(NOT_RECORDED, before.steps + 1)
            else:
                found.append(Gap(NOT_RECORDED, 1))
            continue
        found += _of_step(step, index)
    return found


def _of_step(step: Mapping[str, Any], index: int) -> Iterator[Token]:
    if step.get("root") is not None:
        yield Token(int(step["root"]), PREFILL, index)
    accepted = max(0, int(step.get("accepted") or 0))
    drafted = max(0, int(step.get("drafted_depth") or 0))
    for place, number in enumerate(step["output_ids"]):
        if place < accepted:
            yield Token(int(number), ACCEPTED, index, place + 1)
        elif not drafted:
            yield Token(int(number), UNDRAFTED, index)
        elif (refused := instead(step)) is None:
            yield Token(int(number), BONUS, index)
        else:
            yield Token(int(number), CORRECTION, index, instead=refused)


def instead(step: Mapping[str, Any]) -> Instead | None:
    """Return what was refused in a step, ``None`` where nothing was: all accepted, to the end of a branch."""
    accepted = max(0, int(step.get("accepted") or 0))
    if accepted >= int(step.get("drafted_depth") or 0):
        return None
    ids = _refused(step, accepted)
    if ids == ():
        return None
    rank: int | None = step.get("target_rank")
    outside: int | None = step.get("outside_draft_vocab")
    return Instead(
        ids,
        _scaled(step.get("draft_top1"), accepted),
        None if rank is None else rank + 1,
        step.get("target_prob"),
        step.get("draft_prob"),
        None if outside is None else bool(outside),
    )


def _refused(step: Mapping[str, Any], accepted: int) -> tuple[int, ...] | None:
    """Return the drafts that follow the last accepted one, which is that of the path's end or the root."""
    drafts: Sequence[int] | None = step.get("draft_tokens")
    parents: Sequence[int] | None = step.get("parents")
    path: Sequence[int] | None = step.get("accepted_path")
    if drafts is None or parents is None or path is None or len(path) != accepted:
        return None
    end = path[-1] if path else ROOT
    return tuple(int(draft) for draft, parent in zip(drafts, parents, strict=False) if parent == end)


def _scaled(parts: Sequence[int] | None, place: int) -> float | None:
    if parts is None or place >= len(parts) or parts[place] < 0:
        return None
    return parts[place] / _PARTS
