"""View model of one request: verdict, acceptance per verify step, boundaries, hidden-state facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope import convention as c
from specscope_frontend.charts import VerifyBar, verify_steps
from specscope_frontend.charts.figure import Figure

from specscope_server.store.model import RequestDetail, RequestRow
from specscope_server.store.port import Reads
from specscope_server.tokens.known import Vocabularies
from specscope_server.web import format as f
from specscope_server.web import hidden_request, stats, step_tree, token_view, verdict
from specscope_server.web.confidence import Confidence, confidence
from specscope_server.web.hidden_request import HiddenView
from specscope_server.web.stations import Station, stations
from specscope_server.web.stats import Acceptance, Stat
from specscope_server.web.step_tree import StepTree
from specscope_server.web.token_view import TokenView
from specscope_server.web.trace import Trace, of_request
from specscope_server.web.verdict import Verdict

STEPS_SHOWN: Final = 400
"""Verify steps on one page: a bar stays three pixels wide on a wide screen."""

ID_FACTS: Final[Mapping[str, str]] = {
    "ids_min": "smallest drafted id",
    "ids_max": "largest drafted id",
    "ids_distinct": "distinct drafted ids",
    "ids_mode_share": "share of the most frequent id",
    "ids_even_share": "share of even ids",
    "ids_below_zero": "ids below 0",
    "ids_above_vocab": "ids outside the target's vocabulary",
    "ids_repeats_last": "first draft repeats the last token",
    "target_rank": "tokens the target rated above the refused draft",
    "target_prob": "target's probability of the refused draft",
    "draft_prob": "draft's probability of the target's choice",
    "outside_draft_vocab": "target's choice is none the draft can propose",
    "accepted_free": "accepted without the grammar",
}

TOKEN_LISTS: Final[Mapping[str, str]] = {
    "draft_tokens": "drafted ids",
    "parents": "parent of each draft",
    "accepted_path": "accepted drafts",
    "output_ids": "committed ids",
}
"""Lists that a step has at detail level ``tokens``; parents and path are indices of drafts, -1 the root."""


JSON_STEPS: Final = 5000
"""Verify steps in one answer of the API, which is what is downloaded."""
MAX_DRAWN: Final = 256
"""Tokens of one verify step that a bar shows at most; no draft is that deep."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One verify step for the table. ``after_s`` is the time since the first step shown."""

    number: int
    engine_step: int | None
    after_s: float | None
    values: Mapping[str, Any]
    accepted: int
    rejected: int
    bonus: int


@dataclass(frozen=True, slots=True)
class ExtendGroup:
    """Draft extends alike in what was fed: how many, and the range of their hidden-state statistics."""

    after: str
    fed_width: int | None
    fc_in: int | None
    aux_states: int | None
    dtype: str
    passes: int
    fc_ran: int | None
    mismatch: bool
    ranges: Mapping[str, tuple[float, float] | None]
    nonfinite: int | None
    zero_rows: int | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class RequestPage:
    """The whole page."""

    request: RequestRow
    verdict: Verdict
    numbers: tuple[Stat, ...]
    facts: tuple[Stat, ...]
    figure: Figure | None
    steps: tuple[StepRow, ...]
    id_facts: tuple[tuple[str, str], ...]
    token_lists: tuple[tuple[str, str], ...]
    trees: bool
    first: int
    end: int
    total: int
    lost: int
    before: int | None
    following: int | None
    rejection: tuple[int, int] | None
    stations: tuple[Station, ...]
    extend_groups: tuple[ExtendGroup, ...]
    extends: Sequence[Mapping[str, Any]]
    hidden: HiddenView
    confidence: Confidence | None
    no_steps: str
    trace: Trace
    tokens: TokenView
    tree: StepTree | None
    no_such_step: int | None
    """The number of a step that was asked for and is not there."""

    @property
    def json_steps(self) -> tuple[int, int]:
        """Return the window of steps that is downloaded: all of them, or those around the ones shown."""
        first = self.first // JSON_STEPS * JSON_STEPS
        return first, min(first + JSON_STEPS, self.total)


def build(
    store: Reads, workspace: str, uid: str, first: int, step: int, vocabularies: Vocabularies
) -> RequestPage | None:
    """Read the store and return the page from verify step ``first`` on, ``None`` for an unknown uid.

    The draft of step ``step`` (from 1) is drawn, 0 chooses one; where it is not in the window that begins at
    ``first``, its own window is shown.
    """
    if step and not first <= step - 1 < first + STEPS_SHOWN:
        first = (step - 1) // STEPS_SHOWN * STEPS_SHOWN
    detail = store.request(workspace, uid, first, STEPS_SHOWN)
    if detail is not None and first and first >= detail.steps_total:
        # A link to steps beyond the end shows the last ones.
        first = max(0, detail.steps_total - 1) // STEPS_SHOWN * STEPS_SHOWN
        detail = store.request(workspace, uid, first, STEPS_SHOWN)
    if detail is None:
        return None
    hidden = hidden_request.build(store, workspace, uid, first, STEPS_SHOWN, detail.boundaries)
    if hidden is None:
        return None
    request = detail.request
    rows = _steps(detail)
    # Overshoot steps ran after the request had ended and are in no total: the table alone shows them.
    counted = [r for r in rows if not r.values.get("overshoot")]
    bars = [
        VerifyBar(r.number, _drawn(r.values.get("drafted_depth") or 0), _drawn(r.accepted), _drawn(r.bonus))
        for r in counted
    ]
    told = store.engine_tokenizer(workspace, request.engine_uid)
    tokenizer = vocabularies.of(store, workspace, told)
    chosen = step or step_tree.choose(detail.steps) or 0
    tree = step_tree.build(detail.steps, chosen, tokenizer[1] if tokenizer else None)
    end = min(first + STEPS_SHOWN, detail.steps_total)
    whole = len(rows) >= detail.steps_total
    return RequestPage(
        request=request,
        verdict=verdict.judge(detail),
        numbers=_numbers(request),
        facts=_facts(request),
        figure=verify_steps(bars) if bars else None,
        steps=tuple(rows),
        id_facts=_recorded_in(rows, ID_FACTS),
        token_lists=_recorded_in(rows, TOKEN_LISTS),
        trees=any(r.values.get("drafted_nodes") != r.values.get("drafted_depth") for r in rows),
        first=first,
        end=end,
        total=detail.steps_total,
        lost=max(0, end - first - len(rows)),
        before=max(0, first - STEPS_SHOWN) if first else None,
        following=end if end < detail.steps_total else None,
        rejection=verdict.longest_rejection([r.values for r in counted]) if whole else None,
        stations=tuple(s for s in stations(detail.boundaries, exact=True) if s.crossings),
        extend_groups=tuple(_groups(detail.extends)),
        extends=detail.extends,
        hidden=hidden,
        confidence=confidence([r.values for r in counted]),
        no_steps=_why_no_steps(request),
        trace=of_request(detail),
        tokens=token_view.build(request, detail.steps, told, tokenizer),
        tree=tree,
        no_such_step=step if step and tree is None else None,
    )


def _drawn(tokens: int) -> int:
    """Return a height that can be drawn, whatever an engine told; the table has the number itself."""
    return max(0, min(int(tokens), MAX_DRAWN))


def _recorded_in(rows: Sequence[StepRow], names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((n, label) for n, label in names.items() if any(r.values.get(n) is not None for r in rows))


def _numbers(request: RequestRow) -> tuple[Stat, ...]:
    counts = Acceptance.of_totals(request.totals)
    found = [
        stats.length_stat(counts, stats.NO_STEPS),
        stats.rate_stat(counts, stats.NO_STEPS),
        Stat("Verify steps", f.count(counts.steps), "steps"),
        Stat("Steps accepting nothing", f.count(counts.zero_steps), f"of {f.count(counts.steps)} steps"),
    ]
    node_yield = stats.yield_stat(counts)
    return (*found, node_yield) if node_yield else tuple(found)


def _facts(request: RequestRow) -> tuple[Stat, ...]:
    took = (request.end - request.arrival).total_seconds() if request.end else None
    why_open = "not ended" if request.state == c.STATE_RUNNING else "its end was not seen"
    totals = request.totals
    return (
        _recorded("Prompt", f.count(request.prompt_tokens), "tokens"),
        _recorded("From prefix cache", f.count(request.cached_tokens), "tokens"),
        _recorded("Output", f.count(request.output_tokens), "tokens"),
        Stat("Committed by verify", f.count(totals.committed), "tokens"),
        Stat("Prefill passes", f.count(totals.prefill_passes), "passes"),
        Stat("Overshoot steps", f.count(totals.overshoot_steps), "steps"),
        _engines_own(request),
        _recorded("Queued", f.seconds(request.queue_s), ""),
        _recorded("First token after", f.seconds(request.first_token_s), ""),
        Stat("Took", f.seconds(took), "", why="" if took is not None else why_open),
        _recorded("Temperature", f.significant(request.temperature), ""),
        _recorded("Max tokens", f.count(request.max_tokens), "tokens"),
    )


def _engines_own(request: RequestRow) -> Stat:
    """Return what the engine itself counted, which must be what the steps add up to."""
    label, counts, totals = "Engine's own count", request.engine_counts, request.totals
    if counts is None:
        return Stat(label, f.DASH, "", why="not told, or not every step was seen")
    same = (counts.verify_steps, counts.accepted) == (totals.verify_steps, totals.accepted)
    value = f"{f.count(counts.accepted)} in {f.count(counts.verify_steps)}"
    unit = "accepted, steps: the same" if same else "accepted, steps: not what its steps add up to"
    return Stat(label, value, unit)


def _recorded(label: str, value: str, unit: str) -> Stat:
    return Stat(label, value, unit, why="" if value != f.DASH else "not recorded")


def _steps(detail: RequestDetail) -> list[StepRow]:
    rows: list[StepRow] = []
    start = detail.steps[0].get("t") if detail.steps else None
    for values in detail.steps:
        at = values.get("t")
        depth = int(values.get("drafted_depth") or 0)
        accepted = int(values.get("accepted") or 0)
        rows.append(
            StepRow(
                int(values["index"]) + 1,
                values.get("step"),
                (at - start) / 1e9 if at is not None and start is not None else None,
                values,
                accepted,
                max(0, depth - accepted),
                int(values.get("bonus") or 0),
            )
        )
    return rows


_STATISTICS: Final = ("mean", "std", "rms", "max_abs")


def _groups(extends: Sequence[Mapping[str, Any]]) -> list[ExtendGroup]:
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for extend in extends:
        key = tuple(extend.get(k) for k in ("after", "fed_width", "fc_in", "aux_states", "dtype"))
        alike.setdefault(key, []).append(extend)
    groups: list[ExtendGroup] = []
    for (after, fed, fc_in, aux, dtype), members in alike.items():
        ran = [m["fc_ran"] for m in members if m.get("fc_ran") is not None]
        groups.append(
            ExtendGroup(
                str(after or ""),
                fed,
                fc_in,
                aux,
                str(dtype or ""),
                len(members),
                sum(ran) if ran else None,
                fc_in is not None and fed != fc_in,
                {name: _range(members, name) for name in _STATISTICS},
                _total(members, "nonfinite"),
                _total(members, "zero_rows"),
                _total(members, "rows"),
            )
        )
    return groups


def _range(members: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float] | None:
    known = [float(m[name]) for m in members if m.get(name) is not None]
    return (min(known), max(known)) if known else None


def _total(members: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = [int(m[name]) for m in members if m.get(name) is not None]
    return sum(known) if known else None


def _why_no_steps(request: RequestRow) -> str:
    if not request.totals.verify_steps:
        return "No verify step ran for this request."
    if request.detail == c.DETAIL_SUMMARY:
        return (
            "Single verify steps are not recorded at detail level summary; "
            "start the engine with SPECSCOPE_DETAIL=steps to see them."
        )
    return "The verify steps of this request did not arrive or were dropped; its totals above did."
