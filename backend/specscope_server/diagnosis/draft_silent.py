"""F01, F02, F03: the draft is loaded but takes no part, at one of the boundaries where it must.

All three reach the operator as acceptance 0. What tells them apart is where the path stops: nothing is
drafted (F01), something is proposed without a draft forward (F02), or drafts are made and never verified
(F03). Only boundaries that are armed and expected count.
"""

from __future__ import annotations

from dataclasses import dataclass

from specscope import convention as c

from specscope_server.diagnosis import facts, length_limit, not_drafting
from specscope_server.diagnosis.length_limit import Limit
from specscope_server.diagnosis.model import (
    CERTAIN,
    CRITICAL,
    SUSPECTED,
    WARNING,
    Evidence,
    Finding,
    Number,
    Ruled,
)
from specscope_server.diagnosis.verdict import CLEAR, Clear, Unknown

KIND = "draft_silent"
MIN_EXPECTED = 4
"""Fewer expected crossings than this do not make a silence."""
F01 = "F01"
F02 = "F02"
F03 = "F03"
ONE_ID = 0.98
"""Share of all proposed ids that are one id, from which on they are filler; real drafts repeat a line break
or a space for a while, never nearly always."""
MIN_UNDRAFTED = 32
"""Steps without a draft in them that show that none ever reaches the target."""
MIN_FILLER_STEPS = 64
"""Steps whose proposals must have been looked at before their ids are called filler."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The lines of the ledger this rule reads; ``None`` where a boundary says nothing."""

    extend: facts.Line | None
    fed_forward: facts.Line | None
    self_forward: facts.Line | None
    propose: facts.Line | None
    verify: facts.Line | None

    @property
    def draft(self) -> tuple[facts.Line, ...]:
        found = (self.extend, self.fed_forward, self.self_forward, self.propose)
        return tuple(line for line in found if line is not None)

    @property
    def forwards(self) -> tuple[facts.Line, ...]:
        return tuple(line for line in (self.fed_forward, self.self_forward) if line is not None)

    @property
    def lines(self) -> tuple[facts.Line, ...]:
        return (*self.draft, self.verify) if self.verify is not None else self.draft


@dataclass(frozen=True, slots=True)
class _Silence:
    """Where the path stops: class, boundary, and the sentence's middle."""

    fault: str
    line: facts.Line
    title: str
    what: str
    fix: str


def judge(evidence: Evidence, roots: tuple[Finding, ...]) -> Finding | Clear | Unknown:
    """Say whether the draft was active at every boundary it must cross."""
    path = _Path(
        extend=_enough(facts.line(evidence, c.DRAFT_EXTEND, c.TARGET_FED)),
        fed_forward=_enough(facts.line(evidence, c.DRAFT_FORWARD, c.TARGET_FED)),
        self_forward=_enough(facts.line(evidence, c.DRAFT_FORWARD, c.SELF_FED)),
        propose=_enough(facts.line(evidence, c.DRAFT_PROPOSE)),
        verify=_enough(facts.line(evidence, c.TARGET_VERIFY)),
    )
    silence = _silence(path, evidence)
    if silence is not None:
        return _finding(evidence, path, silence)
    short = next((line for line in path.lines if line.short), None)
    if short is not None:
        return _partial(evidence, path, short)
    if not path.forwards and _filler(evidence) is not None:
        return _filler_alone(evidence, path)
    if path.verify is not None and path.propose is None and _never_asked(evidence):
        return _not_asked(evidence, path, path.verify)
    if path.propose is None or path.verify is None:
        missing = c.DRAFT_PROPOSE if path.propose is None else c.TARGET_VERIFY
        return Unknown(facts.why_no_line(evidence, missing))
    return CLEAR


def _enough(line: facts.Line | None) -> facts.Line | None:
    return line if line is not None and line.expected >= MIN_EXPECTED else None


def _drafted(evidence: Evidence) -> int:
    return evidence.counts.drafted_depth if evidence.counts is not None else 0


def _silence(path: _Path, evidence: Evidence) -> _Silence | None:
    """Return where the path stops, the earliest cause first."""
    proposed = path.propose.observed if path.propose is not None else _drafted(evidence)
    if path.draft and all(line.silent for line in path.draft):
        if _drafted(evidence):
            return _placeholders(path.draft[0], _drafted(evidence))
        first = path.propose or path.draft[0]
        return _Silence(
            F01,
            first,
            "Draft loaded, not active",
            f"The draft never ran: {first.boundary} was expected {first.expected} times {first.span} and seen"
            " 0 times. The engine serves without speculation although it is set to draft, so"
            " you pay for the draft's memory and gain nothing.",
            "Look for the engine's reason not to draft (batch size limit, an option that switches speculation"
            " off, a draft worker that failed to start) and restart with it removed.",
        )
    if path.propose is not None and path.propose.silent:
        return _Silence(
            F01,
            path.propose,
            "Draft never proposes",
            f"The draft takes in the target's states but never proposes: {c.DRAFT_PROPOSE} was expected"
            f" {path.propose.expected} times {path.propose.span} and seen 0 times. Nothing is drafted, so"
            " nothing can be accepted.",
            "Look for the engine's reason to decode without drafts (batch size limit, adaptive speculation)"
            " and remove it.",
        )
    if path.forwards and all(line.silent for line in path.forwards) and proposed:
        return _placeholders(path.forwards[0], proposed)
    if path.extend is not None and path.extend.silent:
        return _Silence(
            F02,
            path.extend,
            "Draft never fed by the target",
            f"The draft proposes without ever taking in the target's hidden states: {c.DRAFT_EXTEND} was"
            f" expected {path.extend.expected} times {path.extend.span} and seen 0 times. It guesses blindly,"
            " so its tokens are rejected.",
            "Find why the engine skips the draft extend (length limit of the draft, hand-over between"
            " prefill and decode) and remove it.",
        )
    if path.self_forward is not None and path.self_forward.silent:
        return _Silence(
            F02,
            path.self_forward,
            "Later draft steps skipped",
            "After its first token the draft never runs again: the later positions were expected"
            f" {path.self_forward.expected} times {path.self_forward.span} and computed 0 times, so what is"
            " proposed there is filler.",
            "Find why the engine skips the draft's later steps (length limit of the draft, steps setting).",
        )
    if path.fed_forward is not None and path.fed_forward.silent:
        return _placeholders(path.fed_forward, path.fed_forward.expected)
    if path.verify is not None and path.verify.silent:
        return _Silence(
            F03,
            path.verify,
            "Drafts never verified",
            f"The draft works, but the target never checks what it proposes: {c.TARGET_VERIFY} was expected"
            f" {path.verify.expected} times {path.verify.span} and seen 0 times. Drafts that nobody verifies"
            " are thrown away.",
            "Find why the engine drops the proposals before verification (grammar, overlap or disaggregation"
            " options) and restart without that option.",
        )
    return _dropped(path, evidence)


def _dropped(path: _Path, evidence: Evidence) -> _Silence | None:
    """Return that the draft runs and proposes, and no verify step has a draft in it."""
    counts, propose = evidence.counts, path.propose
    if counts is None or propose is None or path.verify is None or not propose.observed:
        return None
    if counts.steps < MIN_UNDRAFTED or counts.undrafted_steps < counts.steps or counts.drafted_depth:
        return None
    ran = sum(line.observed for line in path.forwards)
    if not ran:
        return None
    return _Silence(
        F03,
        path.verify,
        "Drafts made and dropped",
        f"The draft works ({propose.observed} proposals, {ran} forwards {propose.span}), and none of its"
        f" tokens reaches the target: all {counts.steps} steps ran without one. You pay for drafts that"
        " nobody verifies.",
        "Find why the engine drops the proposals before verification (grammar, overlap or a fallback to plain"
        " decoding) and remove it.",
    )


def _placeholders(line: facts.Line, proposed: int) -> _Silence:
    return _Silence(
        F02,
        line,
        "Draft skipped, placeholders counted",
        f"Tokens were proposed {proposed} times but the draft model itself ran 0 of {line.expected} times"
        f" {line.span}: the proposals are filler, and the target rejects them.",
        "Find why the draft's forward is skipped; often the sequence is longer than the draft's"
        " max_position_embeddings, or a length option of the engine. Raise it or use another draft.",
    )


def _contradiction(evidence: Evidence, silence: _Silence) -> Number | None:
    """Return a number that says the boundary *was* crossed: then its hook misses, and nothing is proven."""
    counts = evidence.counts
    at = silence.line
    if at.boundary == c.TARGET_VERIFY and counts is not None and counts.accepted:
        return Number("accepted draft tokens counted, which needs a verify", counts.accepted, 0, "tokens")
    if at.boundary == c.DRAFT_FORWARD and at.source == c.TARGET_FED:
        fc = facts.line(evidence, c.DRAFT_FC, c.TARGET_FED)
        if fc is not None and fc.observed:
            return Number("fc crossings, which need a draft forward", fc.observed, 0, "crossings")
    return None


def _filler(evidence: Evidence) -> Number | None:
    """Return the one id that nearly all proposals are; ``None``: they are several, or were not looked at."""
    ids = evidence.steps.ids
    if ids is None or ids.steps < MIN_FILLER_STEPS or ids.same_mode is None or ids.same_mode < ONE_ID:
        return None
    return Number(
        f"share of proposed ids that are {ids.mode_id}", round(ids.same_mode, 4), f"< {ONE_ID:g}", "",
        facts.link(evidence, c.DRAFT_PROPOSE),
    )  # fmt: skip


def _limit_numbers(evidence: Evidence, limit: Limit) -> tuple[Number, ...]:
    place = facts.link(evidence)
    return (
        Number(f"drafts accepted in contexts from {limit.start} tokens on ({limit.steps_above} steps)", 0,
               "some", "drafts", place),
        Number(f"drafts accepted in shorter contexts ({limit.steps_below} steps)", limit.accepted, None,
               "drafts", place),
    )  # fmt: skip


def _numbers(evidence: Evidence, path: _Path) -> list[Number]:
    numbers = [facts.crossings(evidence, line) for line in path.lines]
    filler, limit = _filler(evidence), length_limit.find(evidence)
    numbers += [filler] if filler is not None else []
    numbers += _limit_numbers(evidence, limit) if limit is not None else ()
    if evidence.counts is not None:
        numbers.append(
            Number(
                "drafted tokens per verify step",
                round(evidence.counts.drafted_depth / evidence.counts.steps, 3)
                if evidence.counts.steps
                else None,
                facts.setting(evidence.config, "speculative", "num_steps"),
                "tokens",
                facts.link(evidence),
            )
        )
    errors = facts.hook_errors(evidence)
    return [*numbers, *((errors,) if errors else ())]


def _ruled_out(path: _Path, silence: _Silence) -> tuple[Ruled, ...]:
    ruled: list[Ruled] = []
    if silence.fault != F01 and path.propose is not None and path.propose.observed:
        ruled.append(Ruled("F01 loaded, not active", f"it proposed {path.propose.observed} times"))
    ran = sum(line.observed for line in path.forwards)
    if silence.fault == F03 and ran:
        ruled.append(Ruled("F02 draft skipped", f"it ran {ran} forwards"))
    if silence.fault != F03 and path.verify is not None and path.verify.observed:
        ruled.append(Ruled("F03 never verified", f"the target verified {path.verify.observed} times"))
    ruled.append(Ruled("no traffic", f"engine passes expected {silence.line.expected} crossings"))
    return tuple(ruled)


def _finding(evidence: Evidence, path: _Path, silence: _Silence) -> Finding:
    contradiction = _contradiction(evidence, silence)
    proven = contradiction is None and not evidence.hook_errors
    doubt = (
        ""
        if proven
        else " Something contradicts this (see the numbers), so the tracer's own hook may be what is missing."
    )
    numbers = _numbers(evidence, path)
    return Finding(
        kind=KIND,
        fault_class=silence.fault,
        severity=CRITICAL,
        confidence=CERTAIN if proven else SUSPECTED,
        title=silence.title,
        sentence=silence.what + doubt,
        numbers=(*numbers, *((contradiction,) if contradiction else ()), *facts.examples(evidence)),
        ruled_out=_ruled_out(path, silence),
        next_check="A/B: send one short prompt (under 100 tokens) alone; if the boundary is crossed then, a"
        " length or batch limit skips the draft, else search the engine's log for its draft worker's start",
        fix=silence.fix,
        boundary=silence.line.boundary,
    )


def _partial(evidence: Evidence, path: _Path, short: facts.Line) -> Finding:
    fault = {c.DRAFT_PROPOSE: F01, c.TARGET_VERIFY: F03}.get(short.boundary, F02)
    limit = length_limit.find(evidence)
    # A boundary that is missed in some passes, and a length from which on nothing is accepted: by accident
    # these do not come together.
    proven = limit is not None and not evidence.hook_errors
    where = (
        ""
        if limit is None
        else f" They are the long contexts: from {limit.start} tokens on no draft is accepted in"
        f" {limit.steps_above} verify steps"
        + (f", {limit.undrafted} of which drafted nothing" if limit.undrafted else "")
        + f", below {limit.accepted} are in {limit.steps_below}."
    )
    return Finding(
        kind=KIND,
        fault_class=fault,
        severity=WARNING,
        confidence=CERTAIN if proven else SUSPECTED,
        title="Draft silent in some passes" if limit is None else "Draft silent in long contexts",
        sentence=(
            f"{short.boundary} was crossed {short.observed} of {short.expected} times {short.span}: in some"
            f" passes the draft takes no part, so those gain nothing from speculation.{where}"
        ),
        numbers=(*_numbers(evidence, path), *facts.examples(evidence)),
        next_check="Filter the requests by the flag 'gap' and compare their prompt lengths and batch sizes"
        " with complete ones: a limit shows as a boundary between the two groups",
        fix="Raise the limit that skips the draft, or accept it if it was set on purpose.",
        boundary=short.boundary,
    )


def _never_asked(evidence: Evidence) -> bool:
    """Say whether no pass since the start had to draft, and none of the window did."""
    counts = evidence.counts
    return (
        counts is not None
        and counts.undrafted_steps == counts.steps >= MIN_EXPECTED
        and not sum(line.expected for line in evidence.since_start if line.boundary == c.DRAFT_PROPOSE)
    )


def _not_asked(evidence: Evidence, path: _Path, verify: facts.Line) -> Finding | Unknown:
    """Tell an engine that is set to draft and whose own settings never let it."""
    allowed = not_drafting.table(evidence)
    if allowed and not not_drafting.never_by_table(allowed):
        return Unknown("no batch since the engine started was of a size at which it is set to draft")
    told = ", ".join(f"{'/'.join(str(one) for one in steps)} from {size}" for size, steps in allowed.items())
    named = (
        f" Its table of draft steps by batch size ({told} requests at once on) has none at the smallest"
        " batches, where a draft gains most."
        if told
        else ""
    )
    return Finding(
        kind=KIND,
        fault_class=F01,
        severity=CRITICAL,
        confidence=CERTAIN if told and not evidence.hook_errors else SUSPECTED,
        title="Draft loaded, never asked",
        sentence=(
            f"The engine is set to draft, and none of its {verify.expected} verify passes {verify.span} asked"
            f" the draft for anything, nor did any since it started.{named} You pay for the draft's memory"
            " and gain nothing."
        ),
        numbers=(*_numbers(evidence, path), *facts.examples(evidence)),
        ruled_out=(Ruled("F02 draft skipped", "nothing was proposed"),),
        next_check="A/B: restart without the adaptive steps (SGLang: without --speculative-adaptive): the"
        " engine page must show draft.propose crossed once in each verify pass",
        fix="Give small batches draft steps in the table of --speculative-adaptive-config, or serve without"
        " a draft.",
        boundary=c.DRAFT_PROPOSE,
    )


def _filler_alone(evidence: Evidence, path: _Path) -> Finding:
    """Where the draft's forward cannot be observed, one constant id is the only trace of a skipped draft."""
    ids = evidence.steps.ids
    return Finding(
        kind=KIND,
        fault_class=F02,
        severity=WARNING,
        confidence=SUSPECTED,
        title="The draft proposes one and the same id",
        sentence=(
            f"Practically all that is proposed is the id {ids.mode_id if ids else ''}: either the draft is"
            " skipped and filler is proposed in its place, or its output is the same whatever it reads. Its"
            " own forward cannot be observed here, so that which of both is open."
        ),
        numbers=(*_numbers(evidence, path), *facts.examples(evidence)),
        next_check="Look at the draft's hidden states (detail steps): values that are not finite give one"
        " constant id as well; A/B: one short prompt (under 100 tokens) alone",
        fix="Find why the draft's forward is skipped; often the sequence is longer than the draft's"
        " max_position_embeddings, or a length option of the engine. Raise it or use another draft.",
        boundary=c.DRAFT_FORWARD,
    )
