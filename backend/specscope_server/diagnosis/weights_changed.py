"""F21: weights were changed while the engine served, and the draft does not fit any more.

An update can leave the draft's weights zero or not finite, bring them in another order, or bring the target's
alone. Certain: what the update itself changed is odd now, or is another model's. Suspected: acceptance
stepped down at the update. That only the target's weights changed is told, and is no fault by itself: small
steps of training keep a draft useful.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from specscope.rollup import Counts

from specscope_server.diagnosis import facts, inventory, slice_compare, statistics, what_changed
from specscope_server.diagnosis.engine_evidence import Event
from specscope_server.diagnosis.model import CERTAIN, CRITICAL, SUSPECTED, Evidence, Finding, Number, Ruled
from specscope_server.diagnosis.slice_compare import MIN_STEPS
from specscope_server.diagnosis.statistics import Share
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND: Final = "weights_changed"
FAULT: Final = "F21"
BEFORE_S: Final = 1800
"""How much of the time before an update its acceptance is held against."""
GAP: Final = 0.15
RATIO: Final = 0.5
"""The first token must be accepted by this much less, and at most half as often, as before the update."""
_DRAFT: Final = "draft weights"
_TARGET: Final = "target weights"
_BROKEN: Final = ("all zero", "not finite", "missing", "partly loaded", "norm near zero")


def judge(evidence: Evidence, found: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether a change of weights broke the draft."""
    if any(one.kind == "draft_silent" and one.confidence == CERTAIN for one in found):
        return CLEAR
    changed = {
        str(name).partition(": ")[2]
        for name in _list(facts.setting(evidence.config, "weights", "event", "changed"))
        if str(name).startswith("draft")
    }
    odd = [
        one for one in inventory.oddities(evidence, *_BROKEN) if one.name in changed and one.level == "check"
    ]
    updates = [one for one in evidence.events if _DRAFT in one.changed or _TARGET in one.changed]
    if odd:
        return _finding(
            evidence,
            CERTAIN,
            "An update left the draft's weights broken",
            f"The last change of weights wrote {len(odd)} of the draft's tensors that are broken now"
            f" ({', '.join(f'{one.name}: {one.kind}' for one in odd[:3])}).",
            tuple(one.number(evidence) for one in odd[:5]),
            updates[-1] if updates else None,
            (Ruled("F23 workload", "the tensors themselves are broken"),),
        )
    foreign = _foreign(evidence, changed, updates)
    if foreign:
        return _of_another_model(evidence, foreign, updates[-1] if updates else None)
    if not updates:
        version = inventory.number(facts.setting(evidence.config, "weights", "version"))
        if version and not evidence.events:
            return Unknown("weights were changed, and when is not known any more")
        return CLEAR
    return _step(evidence, updates[-1])


def _foreign(evidence: Evidence, changed: set[str], updates: list[Event]) -> dict[str, tuple[str, str]]:
    """Return the draft's tensors that the last update wrote from another model: (their name, other layer's).

    Two things together: the tensor came from another name before, and the same name with the number of
    another layer was in the update too and found no place in the draft. An update that is the draft's own has
    no more layers than it; a draft that is a layer of the target's checkpoint comes from the same name again.
    """
    unused = {
        _any_layer(name): name
        for load in facts.entries(evidence.config, "weights", "event", "draft_loads")
        for name in reversed([str(one) for one in _list(load.get("unused"))])
        if _any_layer(name) != name
    }
    known = {name for one in evidence.reference_weights for name in one.source}
    renamed = set(updates[-1].renamed) if updates else set[str]()
    found: dict[str, tuple[str, str]] = {}
    for tensor in inventory.tensors(evidence) if unused else ():
        name, source = str(tensor.get("name")), [str(one) for one in _list(tensor.get("from"))]
        others = name in renamed or (known and not known & set(source))
        layer = next(((one, unused[_any_layer(one)]) for one in source if _any_layer(one) in unused), None)
        if name in changed and others and layer is not None:
            found[name] = layer
    return found


def _any_layer(name: str) -> str:
    """Return the name of a tensor without the numbers in it."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _of_another_model(
    evidence: Evidence, foreign: dict[str, tuple[str, str]], update: Event | None
) -> Finding:
    name, (source, other) = next(iter(foreign.items()))
    return _finding(
        evidence,
        CERTAIN,
        "An update of another model was written into the draft",
        f"The last change of weights wrote {len(foreign)} of the draft's tensors"
        f" ({', '.join(list(foreign)[:3])}) from names that they did not come from before: {name} from"
        f" {source}. The same update brought {other}, for which the draft has no place: it was meant for a"
        " model with more layers, whose names some of the draft's tensors share.",
        tuple(
            Number(f"{one} was written from", ours, None, "", inventory.link(evidence))
            for one, (ours, _) in list(foreign.items())[:5]
        ),
        update,
        (
            Ruled("F06, F12 the draft's code or conversion", "it held its own weights until the update"),
            Ruled("an update of the draft", "that has no more layers than the draft"),
        ),
    )


def _step(evidence: Evidence, update: Event) -> Finding | Clear | Unknown:
    """Hold acceptance since an update against that before."""
    before, since = _by_version(evidence, update) or _by_minutes(evidence, update)
    requests = slice_compare.steps_a_request(evidence)
    if requests is None or min(before.of, since.of) < MIN_STEPS:
        return Unknown(
            f"weights were changed at {what_changed.when(update.at)}; {before.of:.0f} verify steps before and"
            f" {since.of:.0f} since are too few to compare"
        )
    if since.value > RATIO * before.value:
        return CLEAR
    weighed = (statistics.effective(before, requests), statistics.effective(since, requests))
    if statistics.log_evidence(*weighed, GAP) < slice_compare.BOUND:
        return CLEAR
    behind = _TARGET in update.changed and _DRAFT not in update.changed
    place = facts.link(evidence)
    return _finding(
        evidence,
        SUSPECTED,
        "The draft is behind its target" if behind else "Acceptance fell with a change of weights",
        f"At {what_changed.when(update.at)} the {' and '.join(update.changed)} were changed; before, the"
        f" first draft token was accepted in {before.value:.0%} of the steps, since then in"
        f" {since.value:.0%}."
        + (" The draft's own weights stayed: it drafts for the target of before." if behind else ""),
        (
            Number("first-token acceptance before", round(before.value, 3), None,
                   f"of {before.of:.0f} steps", place),
            Number("first-token acceptance since", round(since.value, 3), round(before.value, 3),
                   f"of {since.of:.0f} steps", place),
        ),
        update,
    )  # fmt: skip


def _by_version(evidence: Evidence, update: Event) -> tuple[Share, Share] | None:
    """Return first-token acceptance under the versions before and from an update on, where both served."""
    version = update.weight_version
    if version is None:
        return None
    told = evidence.steps.versions
    sides = (
        _share(counts for number, counts in told.items() if number < version),
        _share(counts for number, counts in told.items() if number >= version),
    )
    return sides if min(side.of for side in sides) >= MIN_STEPS else None


def _by_minutes(evidence: Evidence, update: Event) -> tuple[Share, Share]:
    # The minute of the update holds steps of both sides.
    before = [one for one in evidence.history if update.at - BEFORE_S <= one.start <= update.at - 60]
    since = [one for one in evidence.history if one.start >= update.at]
    return _share(one.counts for one in before), _share(one.counts for one in since)


def _share(counts: Iterable[Counts]) -> Share:
    return slice_compare.first_token(slice_compare.total(counts)) or Share(0, 0)


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _finding(
    evidence: Evidence,
    confidence: str,
    title: str,
    sentence: str,
    numbers: tuple[Number, ...],
    update: Event | None,
    ruled: tuple[Ruled, ...] = (),
) -> Finding:
    when = (
        ()
        if update is None
        else (
            Number("changed at", what_changed.when(update.at), None, "", facts.link(evidence)),
            Number("weights version since", update.weight_version, None, "", inventory.link(evidence)),
        )
    )
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=confidence,
        title=title,
        sentence=sentence,
        numbers=(*when, *numbers, *facts.examples(evidence)),
        ruled_out=ruled,
        next_check="A/B: load the weights of before the change into one replica and serve both the same"
        " prompts; if acceptance comes back, the change was the cause",
        fix="Update draft and target together, from one training step, and in the order of tensors that the"
        " engine names; until then go back to the weights of before.",
        boundary="draft.forward",
    )
