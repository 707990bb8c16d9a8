"""View model of the draft of one verify step: what was drafted, what of it was accepted, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope_frontend.charts.draft_tree import BOX, DraftTree, draft_tree

from specscope_server.tokens import committed as how
from specscope_server.tokens.committed import Instead, Token
from specscope_server.tokens.runs import text_of
from specscope_server.tokens.vocabulary import Vocabulary
from specscope_server.web import format as f
from specscope_server.web.token_view import KINDS

_LABEL: Final = 13
"""Characters of a node's text that fit its box."""
_ROOT: Final = -1


@dataclass(frozen=True, slots=True)
class NodeView:
    """A box of the drawing: ``state`` is root, accepted, refused or own (the target's)."""

    x: int
    y: int
    state: str
    label: str
    note: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The same in a table, with what fits no box. ``number`` counts from 1, empty for the target's own."""

    number: str
    parent: str
    depth: int | None
    id: int
    text: str
    state: str
    note: str


@dataclass(frozen=True, slots=True)
class StepTree:
    """The draft of step ``number`` (from 1). ``why`` says why there is nothing to draw; then there is not."""

    number: int
    engine_step: int | None
    why: str
    chain: bool = True
    drawn: DraftTree | None = None
    box: tuple[int, int] = BOX
    nodes: tuple[NodeView, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    rows: tuple[NodeRow, ...] = ()
    best: tuple[float | None, ...] = ()
    """The draft's probability of its favourite by position; of a tree on its best branch."""
    instead: Instead | None = None
    accepted: int = 0
    drafted: int = 0
    own: str = ""


def choose(steps: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of the step to show unasked: the first that refused a draft, else the first."""
    known = [step for step in steps if step.get("draft_tokens")]
    refusing = (step for step in known if how.instead(step) is not None)
    step = next(refusing, known[0] if known else None)
    return None if step is None else int(step["index"]) + 1


def build(steps: Sequence[Mapping[str, Any]], number: int, vocabulary: Vocabulary | None) -> StepTree | None:
    """Return the draft of a step of the window, ``None`` where the window has no such step."""
    at = next((place for place, step in enumerate(steps) if step["index"] == number - 1), None)
    if at is None:
        return None
    step = steps[at]
    drafts: Sequence[int] | None = step.get("draft_tokens")
    parents: Sequence[int] | None = step.get("parents")
    engine_step: int | None = step.get("step")
    if drafts is None:
        return StepTree(number, engine_step, "Drafted ids of this step are not recorded at its detail level.")
    if parents is None or len(parents) != len(drafts):
        return StepTree(number, engine_step, "The shape of this step's draft was not told.")
    if not drafts:
        return StepTree(number, engine_step, "Nothing was drafted for this step.")
    path: Sequence[int] = step.get("accepted_path") or ()
    own = _own(step)
    # The target's own token is drawn as one more node, behind the last accepted draft.
    end = path[-1] if path else _ROOT
    every = [*parents, end] if own else list(parents)
    drawn = draft_tree(every, {*path, *([len(parents)] if own else [])})
    refused = how.instead(step)
    chain = all(parent == place - 1 for place, parent in enumerate(parents))
    states = {place: "accepted" if place in set(path) else "refused" for place in range(len(parents))}
    notes = _notes(step, chain, refused)
    ids = dict(enumerate(drafts))
    if own:
        states[len(parents)], ids[len(parents)] = f"own {KINDS[own.how].mark}", own.id
        if refused is not None and refused.choice_prob is not None:
            notes[len(parents)] = f"draft: {f.significant(refused.choice_prob)}"
    root = _root(steps, at)
    depths = {node.index: node.depth for node in drawn.nodes}
    return StepTree(
        number=number,
        engine_step=engine_step,
        why="",
        chain=chain,
        drawn=drawn,
        nodes=tuple(
            NodeView(
                node.x,
                node.y,
                states.get(node.index, "root"),
                _label(root if node.index == _ROOT else ids[node.index], vocabulary),
                notes.get(node.index, "context ends" if node.index == _ROOT else ""),
            )
            for node in drawn.nodes
        ),
        edges=tuple((edge.path, states[edge.index].split()[0]) for edge in drawn.edges),
        rows=tuple(
            NodeRow(
                "" if place == len(parents) else f.count(place + 1),
                _parent(every[place]),
                depths.get(place),
                ids[place],
                text_of([ids[place]], vocabulary),
                KINDS[own.how].name if own and place == len(parents) else states[place],
                notes.get(place, ""),
            )
            for place in range(len(every))
        ),
        best=_best(step),
        instead=refused,
        accepted=len(path),
        drafted=len(parents),
        own=KINDS[own.how].name if own else "",
    )


def _own(step: Mapping[str, Any]) -> Token | None:
    """Return the target's own token of a step, ``None`` where none was committed."""
    tokens = [token for token in how.committed([step]) if isinstance(token, Token)]
    last = tokens[-1] if tokens else None
    return last if last is not None and last.how in (how.BONUS, how.CORRECTION) else None


def _root(steps: Sequence[Mapping[str, Any]], at: int) -> int | None:
    """Return the last token of the context, as far as this step or the one before tells it."""
    root: int | None = steps[at].get("root")
    if root is not None or not at or steps[at - 1]["index"] != steps[at]["index"] - 1:
        return root
    before: Sequence[int] = steps[at - 1].get("output_ids") or ()
    return before[-1] if before else None


def _best(step: Mapping[str, Any]) -> tuple[float | None, ...]:
    parts: Sequence[int] = step.get("draft_top1") or ()
    return tuple(None if part < 0 else part / 10_000 for part in parts)


def _notes(step: Mapping[str, Any], chain: bool, refused: Instead | None) -> dict[int, str]:
    """Return what is known of single drafts: in a tree probabilities are of its best branch, and of none."""
    notes: dict[int, str] = {}
    if chain:
        for place, share in enumerate(_best(step)):
            if share is not None:
                notes[place] = f"p {f.significant(share)}"
    parents: Sequence[int] = step["parents"]
    path: Sequence[int] = step.get("accepted_path") or ()
    if refused is not None and refused.rank is not None:
        end = path[-1] if path else _ROOT
        first = next((place for place, parent in enumerate(parents) if parent == end), None)
        if first is not None:
            rank = f"target #{f.count(refused.rank)}"
            notes[first] = f"{notes[first]} · {rank}" if first in notes else rank
    return notes


def _label(number: int | None, vocabulary: Vocabulary | None) -> str:
    if number is None:
        return "not told"
    text = text_of([number], vocabulary).replace("\n", "").replace("\t", "")
    text = text.replace(" ", "␣") if text.strip() != text else text
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _parent(index: int) -> str:
    return "root" if index == _ROOT else "none" if index < 0 else f.count(index + 1)
