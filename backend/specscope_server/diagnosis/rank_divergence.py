"""F19: ranks of one group propose or accept differently in the same engine step.

The ranks of a tensor-parallel group run every step together on the same requests and must come to the same
drafts and the same accepted tokens; nothing but that keeps their KV caches and their next step alike. Equal
bytes have equal checksums, so one step that differs is certain. Which boundary parted first says where to
look: proposals (the ranks draft differently) or accepts while the proposals of that step were equal (they
verify or sample differently). What differs after the first step may be a mere consequence.

That ranks part is no explanation of a low acceptance: a real divergence was once blamed and changed no
counter. So this finding explains no other one.

Ranks may also agree on every draft and hold different states: their parts are added up, and all take the sum.
What every rank has as a whole tells, compared row by row: what the draft is fed, and what its fc makes of it.
"""

from __future__ import annotations

from typing import Final

from specscope import convention as c
from specscope import hidden

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    WARNING,
    Evidence,
    Finding,
    Number,
    RankEvidence,
    RankHidden,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND = "rank_divergence"
FAULT = "F19"
APART: Final = 0.05
"""Relative error of hidden states that no order of summation explains: bfloat16 keeps 0.004 of each value."""
MIN_STEPS: Final = 8
"""Compared steps from which on a median says what most of them are."""
PLACES: Final = (hidden.FED, hidden.FC_OUT)
"""Where ranks hold the same state, along the path."""


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the ranks of each group agreed on every step that could be compared."""
    del roots
    apart = [group for group in evidence.ranks if group.first_step is not None]
    if apart:
        return _finding(evidence, apart)
    for group in evidence.ranks:
        first = _states_apart(group)
        if first is not None:
            return _states(evidence, group, first)
    if not evidence.ranks:
        size = facts.setting(evidence.config, "arguments", "tp_size")
        if isinstance(size, int) and size > 1:
            return Unknown(f"no rank has told of its steps, though the engine is set to {size} of them")
        return CLEAR  # one rank has nobody to differ from
    for group in evidence.ranks:
        why = not_comparable(group)
        if why:
            return Unknown(f"{named(group, evidence)}{why}")
    return CLEAR


def _states_apart(group: RankEvidence) -> RankHidden | None:
    """Return the first place along the path at which most steps have another state on the ranks."""
    for place in PLACES:
        found = [
            one
            for one in group.hidden
            if one.place == place and one.compared >= MIN_STEPS and one.median > APART
        ]
        if found:
            return max(found, key=lambda one: one.median)
    return None


def named(group: RankEvidence, evidence: Evidence) -> str:
    """Return which group is spoken of, empty where there is one."""
    return f"{group.name}: " if len(evidence.ranks) > 1 else ""


def not_comparable(group: RankEvidence) -> str:
    """Say why the ranks of a group could not all be held against each other; empty: they could."""
    heard = len(group.heard)
    if heard < group.size:
        names = ", ".join(map(str, group.heard))
        return f"{heard} of {group.size} ranks heard (rank {names}), so not all could be compared"
    if not group.compared:
        return f"{heard} of {group.size} ranks heard, but no step was told by two of them yet"
    if group.alone > group.compared:
        return f"only {group.compared} steps were told by all ranks, {group.alone} by some alone"
    return ""


def _states(evidence: Evidence, group: RankEvidence, first: RankHidden) -> Finding:
    fed = first.place == hidden.FED
    place = f"{facts.link(evidence)}#ranks"
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=CERTAIN,
        title="Ranks are fed different states" if fed else "Ranks make different states of the same input",
        sentence=(
            f"{named(group, evidence)}In most of {first.compared} compared steps rank {first.rank} "
            + (
                "feeds its draft another state than the lowest rank does"
                if fed
                else "makes another state of what its draft is fed, by its fc, than the lowest rank does,"
                " though both are fed the same"
            )
            + f" (median relative error {first.median:.3g}; rounding makes 0.004). What the ranks then add up"
            " is of no state that the draft was trained on; drafts and accepts are equal because the sum is."
        ),
        numbers=(
            Number(f"median relative error of the ranks at {first.place}, slot {first.slot}",
                   round(first.median, 3), f"< {APART:g}", f"over {first.compared} steps", place),
            *(
                Number(f"median relative error of the ranks at {one.place}, slot {one.slot}",
                       round(one.median, 3), f"< {APART:g}", f"over {one.compared} steps", place)
                for one in group.hidden
                if one is not first
            ),
            Number("steps with different proposals", group.proposals_differ, 0, "steps", place),
            *facts.examples(evidence),
        ),
        ruled_out=(
            Ruled("F23 workload", "all ranks of a group are given the same requests in a step"),
            *(() if fed else (Ruled("F05, F07 wrong states", "the ranks are fed the same states"),)),
        ),
        next_check="compare the ranks' weights of the draft (their hashes in the weight inventory) and the"
        " files of the checkpoint on each machine",
        fix="Load the same checkpoint of target and draft on every rank.",
        boundary=c.DRAFT_EXTEND if fed else c.DRAFT_FC,
    )  # fmt: skip


def _finding(evidence: Evidence, apart: list[RankEvidence]) -> Finding:
    # The group that parted first would be a guess across groups, which count steps apart: the worst one.
    group = max(apart, key=lambda g: (g.accepts_differ, g.proposals_differ))
    drafts = group.boundary == c.DRAFT_PROPOSE
    harmful = group.accepts_differ > 0
    what = "proposed different drafts" if drafts else "accepted different tokens"
    then = "" if drafts else " though they had proposed the same" if group.proposals_compared else ""
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL if harmful else WARNING,
        confidence=CERTAIN,
        title="Ranks draft differently" if drafts else "Ranks accept different tokens",
        sentence=(
            f"{named(group, evidence)}At engine step {group.first_step} {_ranks(group)} {what}{then}:"
            f" {_differ(group)} of {group.compared} compared steps differ."
            + (
                " Each rank then goes on from another text, and its part of the KV cache belongs to that:"
                " what the engine answers is a mixture, and a collective that needs all ranks may hang."
                if harmful
                else " The accepted tokens were the same all the same, as where an engine sends one rank's"
                " verdict to all; drafts of the others are wasted."
            )
        ),
        numbers=_numbers(evidence, group),
        ruled_out=(Ruled("F23 workload", "all ranks of a group are given the same requests in a step"),),
        next_check=(
            "compare the ranks' draft weights (their hashes in the weight inventory), then restart with"
            " --disable-custom-all-reduce and send the same prompts: if the ranks agree now, the reduction"
            " gives each of them other numbers"
            if drafts
            else "restart with SYNC_TOKEN_IDS_ACROSS_TP=1 and send the same prompts at temperature 0: if the"
            " ranks agree now, each of them samples by itself"
        ),
        fix=(
            "Load the same draft on every rank, and let the engine broadcast one rank's drafts or verdict."
            if drafts
            else "Let the engine broadcast one rank's sampled tokens to the others."
        ),
        boundary=group.boundary,
    )


def _differ(group: RankEvidence) -> str:
    told = [
        f"{count} {what}"
        for count, what in ((group.proposals_differ, "proposals"), (group.accepts_differ, "accepts"))
        if count
    ]
    return " and ".join(told)


def _ranks(group: RankEvidence) -> str:
    names = [str(rank) for rank in group.apart]
    if len(names) == len(group.heard):
        return f"the ranks {' and '.join(names)}" if len(names) == 2 else "all ranks"
    return f"rank{'s' if len(names) > 1 else ''} {', '.join(names)} against the others"


def _numbers(evidence: Evidence, group: RankEvidence) -> tuple[Number, ...]:
    place = f"{facts.link(evidence)}#ranks"
    first, last = group.steps or (None, None)
    return (
        Number("ranks heard", len(group.heard), group.size, "ranks", place),
        Number(f"steps compared (engine steps {first} to {last})", group.compared, None, "steps", place),
        Number("first engine step that differs", group.first_step, link=place),
        Number(
            f"steps with different proposals (of {group.proposals_compared} that could be compared)",
            group.proposals_differ,
            0,
            "steps",
            facts.link(evidence, c.DRAFT_PROPOSE),
        ),
        Number(
            "steps with different accepts",
            group.accepts_differ,
            0,
            "steps",
            facts.link(evidence, c.TARGET_VERIFY),
        ),
        *(
            Number(
                f"hidden states at {one.place}, slot {one.slot}: relative error of rank {one.rank}"
                f" at engine step {one.step}",
                round(one.relative_error, 3),
                0,
                link=place,
            )
            for one in group.hidden
            if one.relative_error > APART
        ),
        *facts.examples(evidence),
    )
