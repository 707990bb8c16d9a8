"""F04: the target's aux hidden states did not reach the draft, so fc, which projects them, was bypassed.

EAGLE-3 drafts read several layers of the target (aux hidden states, n x H wide) through ``fc``. Engines
decide by width whether to run it: where what they hand over is as wide as the token embedding they take it
for the draft's own state (SGLang 0.5.23 ``models/llama_eagle3.py``: ``hidden_states.shape[-1] !=
embeds.shape[-1]``). So a target that hands over one H-wide state silently skips fc. On self-fed passes
that is how the draft works; on target-fed passes it is this fault. Captured graphs have a variant: the
buffer keeps its old content when the fed width differs from its own, and fc runs on stale or zero rows.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from specscope import convention as c
from specscope import hidden

from specscope_server.diagnosis import facts
from specscope_server.diagnosis.hidden_evidence import HiddenEvidence
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    WARNING,
    Evidence,
    ExtendEvidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND = "fc_bypassed"
FAULT = "F04"
MIN_PASSES = 4
"""Target-fed passes that a bypass needs when nothing but the ledger shows it; one is enough with a width."""
EMPTY_SHARE = 0.5
NEVER_FILLED = 0.95
"""Share of zero rows after verifies from which on all are empty: what is lost on the way loses some."""
STALE_LOOKS = 16
"""Looks of exactly the same size at which a buffer is not refilled: sizes of states differ between steps."""


@dataclass(frozen=True, slots=True)
class _Widths:
    """What the draft extends say, weighed by passes."""

    wrong: tuple[ExtendEvidence, ...]
    embedding: int | None
    as_embedding: tuple[ExtendEvidence, ...]
    uncaptured: tuple[ExtendEvidence, ...]
    ran: int

    @property
    def corroborate(self) -> bool:
        return bool(self.wrong or self.as_embedding or self.uncaptured) and not self.ran


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether fc ran wherever the target fed the draft."""
    fc = facts.line(evidence, c.DRAFT_FC, c.TARGET_FED)
    if fc is None:
        if facts.setting(evidence.config, "fc") is None and facts.setting(evidence.config, "draft"):
            return CLEAR  # a draft without fc has none to bypass
        return Unknown(facts.why_no_line(evidence, c.DRAFT_FC))
    extend = facts.line(evidence, c.DRAFT_EXTEND, c.TARGET_FED)
    if extend is not None and extend.silent:
        return Unknown("the draft never took in the target's hidden states, so fc had nothing to project")
    widths = _widths(evidence)
    if fc.silent:
        if not widths.corroborate and fc.expected < MIN_PASSES:
            return Unknown(f"only {fc.expected} target-fed passes so far")
        return _bypassed(evidence, fc, widths)
    if widths.wrong and fc.graph:
        return _stale_buffer(evidence, fc, widths, _empty_input(evidence))
    never_filled = _never_filled(evidence)
    if never_filled is not None:
        return _empty_buffer(evidence, fc, widths, never_filled)
    # A pass that never fed the draft skipped no fc: that is a silent draft, another finding.
    fed = fc.expected if extend is None else extend.observed
    if fc.short and fc.observed < fed:
        return _partial(evidence, fc)
    return CLEAR


def _widths(evidence: Evidence) -> _Widths:
    embedding = facts.setting(evidence.config, "draft", "hidden_size")
    extends = evidence.extends
    return _Widths(
        wrong=tuple(e for e in extends if e.fc_in is not None and e.fed_width != e.fc_in),
        embedding=embedding if isinstance(embedding, int) else None,
        as_embedding=tuple(e for e in extends if e.fed_width == embedding),
        uncaptured=tuple(e for e in extends if e.aux_states is not None and e.aux_states < 2),
        ran=sum(e.fc_ran or 0 for e in extends),
    )


def _numbers(evidence: Evidence, fc: facts.Line, widths: _Widths) -> tuple[Number, ...]:
    place = facts.link(evidence, c.DRAFT_EXTEND)
    numbers = [facts.crossings(evidence, fc)]
    for extend in evidence.extends:
        numbers.append(
            Number(
                f"width fed to the draft after {extend.after} ({extend.passes} passes)",
                extend.fed_width,
                extend.fc_in,
                "numbers a token",
                place,
            )
        )
        if extend.aux_states is not None:
            wanted = extend.fc_in // widths.embedding if extend.fc_in and widths.embedding else None
            numbers.append(
                Number(
                    f"aux hidden states handed over after {extend.after}",
                    extend.aux_states,
                    wanted,
                    "states",
                    facts.link(evidence, c.AUX_CAPTURE),
                )
            )
    if widths.as_embedding:
        numbers.append(
            Number("width of the token embedding, which means 'skip fc'", widths.embedding, None, "", place)
        )
    capture = facts.line(evidence, c.AUX_CAPTURE)
    if capture is not None:
        numbers.append(facts.crossings(evidence, capture))
    if _switched_off(evidence):
        numbers.append(
            Number(
                "eagle_config.use_aux_hidden_state of the draft",
                "false",
                "true",
                "",
                f"{facts.link(evidence)}#configuration",
            )
        )
    errors = facts.hook_errors(evidence)
    return (*numbers, *((errors,) if errors else ()), *facts.examples(evidence))


def _switched_off(evidence: Evidence) -> bool:
    return facts.setting(evidence.config, "draft", "eagle_config", "use_aux_hidden_state") is False


def _bypassed(evidence: Evidence, fc: facts.Line, widths: _Widths) -> Finding:
    proven = widths.corroborate or (not evidence.hook_errors and not widths.ran)
    off = _switched_off(evidence)
    cause = (
        " The draft's own configuration asks for it: eagle_config.use_aux_hidden_state is false."
        if off
        else ""
    )
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN if proven else SUSPECTED,
        title="Aux hidden states not captured, fc bypassed",
        sentence=(
            "The draft never saw what it was trained on: fc, the layer that takes in the target's aux hidden"
            f" states, ran in 0 of {fc.expected} target-fed passes {fc.span}{_because(widths)}. It guesses"
            f" from the wrong input, so almost every draft token is rejected.{cause}"
        ),
        numbers=_numbers(evidence, fc, widths),
        ruled_out=_ruled_out(evidence, widths),
        next_check=_check(evidence),
        fix=_fix(widths, off),
        boundary=c.DRAFT_FC,
    )


def _because(widths: _Widths) -> str:
    if widths.wrong:
        one = widths.wrong[0]
        return (
            f", because the draft was handed {one.fed_width} numbers a token where its fc takes {one.fc_in}"
        )
    if widths.as_embedding:
        return f", because the draft was handed {widths.embedding} numbers a token, like a token embedding"
    return ""


def _fix(widths: _Widths, off: bool) -> str:
    if off:
        return (
            "In the draft's config.json set eagle_config.use_aux_hidden_state to true (or remove the key:"
            " true is the default) and restart the engine."
        )
    if any(e.fed_width == e.fc_in for e in widths.as_embedding):
        return (
            "The draft reads one aux layer, so what it is fed is exactly as wide as the token embedding and"
            " the engine's width test skips fc. Use a draft that reads two or more layers, or an engine"
            " whose test is not by width."
        )
    return (
        "Make the target hand over its aux hidden states: check that the engine's class of the target"
        " supports EAGLE-3 capture and that the draft's eagle_config names its layers, then restart."
    )


def _check(evidence: Evidence) -> str:
    path = facts.setting(evidence.config, "arguments", "speculative_draft_model_path")
    place = path if isinstance(path, str) and path else "DRAFT"
    # Quoted: the path comes from an engine, and people paste this into a shell.
    return (
        f"grep -n -A4 eagle_config {shlex.quote(f'{place}/config.json')}  # then A/B: the same prompts with"
        " use_aux_hidden_state true; fc must be crossed once in each target-fed pass"
    )


def _ruled_out(evidence: Evidence, widths: _Widths) -> tuple[Ruled, ...]:
    ruled: list[Ruled] = []
    propose = facts.line(evidence, c.DRAFT_PROPOSE)
    if propose is not None and propose.observed:
        ruled.append(Ruled("F01 draft loaded, not active", f"it proposed {propose.observed} times"))
    forward = facts.line(evidence, c.DRAFT_FORWARD, c.TARGET_FED)
    if forward is not None and forward.observed:
        ruled.append(Ruled("F02 draft skipped", f"it ran {forward.observed} target-fed forwards"))
    verify = facts.line(evidence, c.TARGET_VERIFY)
    if verify is not None and verify.observed:
        ruled.append(Ruled("F03 never verified", f"the target verified {verify.observed} times"))
    if widths.wrong:
        one = widths.wrong[0]
        ruled.append(
            Ruled(
                "F05 wrong aux layers",
                f"wrong layers would still be {one.fc_in} wide together; {one.fed_width} arrived",
            )
        )
    ruled.append(Ruled("F23 workload", "no prompt decides whether fc runs"))
    return tuple(ruled)


def _empty_input(evidence: Evidence) -> Number | None:
    """Return what shows that fc's input was not filled inside graphs: rows of zeros, or one row all along.

    A target's states are never exactly zero, nor all equal in different steps.
    """
    for one in evidence.hidden:
        if one.place != hidden.FC_IN or one.mode != c.GRAPH or one.rows < MIN_PASSES:
            continue
        place = facts.link(evidence, c.DRAFT_FC)
        if (one.zero_share or 0.0) >= EMPTY_SHARE:
            return Number("share of zero rows that fc takes in inside graphs", one.zero_share, 0, "", place)
        if one.levelled >= STALE_LOOKS and one.deviation == 0.0:
            name = f"octaves between the sizes of what fc takes in over {one.levelled} looks inside graphs"
            return Number(name, 0.0, "above 0", "octaves", place)
    return None


def _stale_buffer(evidence: Evidence, fc: facts.Line, widths: _Widths, empty: Number | None) -> Finding:
    one = widths.wrong[0]
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=SUSPECTED if empty is None else CERTAIN,
        title="fc runs on a stale graph buffer",
        sentence=(
            f"The draft was handed {one.fed_width} numbers a token but its fc takes {one.fc_in}, and still fc"
            f" ran, {fc.graph} times inside a captured graph. The engine seems to skip the copy into the"
            " graph's buffer, so that fc works on old or empty rows."
        ),
        numbers=(*((empty,) if empty is not None else ()), *_numbers(evidence, fc, widths)),
        ruled_out=_ruled_out(evidence, widths),
        next_check="A/B: start the engine with --disable-cuda-graph and send the same prompts; if fc is then"
        " never crossed on target-fed passes, the bypass is proven",
        fix=_fix(widths, _switched_off(evidence)),
        boundary=c.DRAFT_FC,
    )


def _never_filled(evidence: Evidence) -> HiddenEvidence | None:
    """Return the place on the way into fc that holds nothing but zeros after every verify step."""
    for one in evidence.hidden:
        if one.place in (hidden.FED, hidden.FC_IN) and one.after == "verify" and one.looks >= MIN_PASSES:
            every = [
                other for other in evidence.hidden if (other.place, other.after) == (one.place, one.after)
            ]
            if all((other.zero_share or 0.0) >= NEVER_FILLED for other in every):
                return one
    return None


def _empty_buffer(evidence: Evidence, fc: facts.Line, widths: _Widths, empty: HiddenEvidence) -> Finding:
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=CRITICAL,
        confidence=CERTAIN,
        title="fc runs on a buffer that is never filled",
        sentence=(
            f"fc ran, and after verify steps it was given nothing but zeros: {empty.zero_share:.0%} of the"
            f" {empty.rows} rows at {empty.place}. The target's aux hidden states never reach the buffer that"
            " the draft reads, in no pass, so it goes on without having seen what was accepted."
        ),
        numbers=(
            Number(
                f"share of rows of zeros at {empty.place}, after verify",
                empty.zero_share,
                0,
                "",
                facts.link(evidence, c.DRAFT_FC),
            ),
            *_numbers(evidence, fc, widths),
        ),
        ruled_out=(
            *_ruled_out(evidence, widths),
            Ruled("F07 lost on the way", "not some rows are empty but all of them, in every pass"),
        ),
        next_check="A/B: the same prompts with --disable-cuda-graph and without plugins that touch its"
        " input; rows after a verify step must not be zero then",
        fix="Look at what copies the target's hidden states into the draft's own buffer: a test of shape or"
        " width that leaves the copy out.",
        boundary=c.DRAFT_FC,
    )


def _partial(evidence: Evidence, fc: facts.Line) -> Finding:
    skipped = [
        f"{e.passes - e.fc_ran} of {e.passes} passes after {e.after}"
        for e in evidence.extends
        if e.fc_ran is not None and e.fc_ran < e.passes
    ]
    where = f" (of those recorded, {' and '.join(skipped)})" if skipped else ""
    return Finding(
        kind=KIND,
        fault_class=FAULT,
        severity=WARNING,
        confidence=SUSPECTED,
        title="fc skipped in some passes",
        sentence=(
            f"fc, the layer that takes in the target's aux hidden states, ran in {fc.observed} of"
            f" {fc.expected} target-fed passes {fc.span}: some passes skip it{where}. The draft is blind in"
            " those, so acceptance is lower than it could be."
        ),
        numbers=_numbers(evidence, fc, _widths(evidence)),
        next_check="Compare a request whose fc count is short with one that is complete: prompt length,"
        " cached prefix and batch row on their pages tell which passes skip it",
        fix="Find the pass kind that skips fc, and report it to the engine with both requests.",
        boundary=c.DRAFT_FC,
    )
