from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import CONFIG, HEALTHY, NOW, SEED_FAULT, counts, evidence, ledger, path, with_path
from specscope import convention as c
from specscope_server.diagnosis import Evidence, diagnose
from specscope_server.diagnosis.registry import RULES
from specscope_server.diagnosis.state import WORDS

IDLE = replace(HEALTHY, window=(), counts=None, extends=(), window_requests={})

CASES: dict[str, tuple[Evidence, str, str]] = {
    "good": (HEALTHY, "healthy", "The draft helps"),
    "bypassed": (SEED_FAULT, "faulty", "0 of 795"),
    "nothing accepted": (replace(HEALTHY, counts=counts(400, 0, 400)), "suspect", "cause not found"),
    "no request": (IDLE, "idle", "no data, which is not health"),
    "health checks only": (
        replace(IDLE, window_requests={c.KIND_HEALTH_CHECK: 9}, window=ledger(path(0, 9))),
        "health checks only",
        "9 health checks",
    ),
    "health checks and warm-up that verified": (
        replace(
            HEALTHY,
            requests={c.KIND_HEALTH_CHECK: 2, c.KIND_WARMUP: 1},
            window_requests={c.KIND_HEALTH_CHECK: 2, c.KIND_WARMUP: 1},
            counts=counts(400, 776, 112),
        ),
        "health checks only",
        "2 health checks and 1 warm-up",
    ),
    "drafts not at this batch": (
        replace(
            with_path(HEALTHY, propose=(0, 0), self_forward=(0, 0)),
            counts=counts(400, 0, 0, undrafted=400),
            config={**CONFIG, "speculative": {"steps_by_batch": {"1": [4], "8": [0]}}},
        ),
        "not drafting",
        "has none from 8 requests at once on",
    ),
    "off": (replace(IDLE, speculation=False), "speculation off", "without a draft"),
    "never heard": (replace(HEALTHY, last_received=None), "tracer silent", "never heard"),
    "silent": (replace(HEALTHY, last_received=NOW - 40), "tracer silent", "for 40 s"),
    "silent with a fault": (
        replace(SEED_FAULT, last_received=NOW - 40),
        "tracer silent",
        "showed last: aux hidden states not captured",
    ),
    "shut down in order": (
        replace(HEALTHY, ended=NOW - 40, last_received=NOW - 40),
        "ended",
        "shut down in order 40 s ago: its tracer said so",
    ),
    "shut down with a fault": (
        replace(SEED_FAULT, ended=NOW - 1),
        "ended",
        "showed last: aux hidden states not captured",
    ),
    "starting": (
        replace(IDLE, speculation=None, since_start=(), requests={}),
        "starting",
        "not told its configuration",
    ),
    "short run": (replace(HEALTHY, counts=counts(5, 1, 4)), "too little data", "1 of 5 verify steps"),
    "requests, no step yet": (
        replace(HEALTHY, counts=None),
        "too little data",
        "no verify step was reported",
    ),
    "nothing drafted, path not told": (
        replace(HEALTHY, window=(), since_start=(), counts=counts(50, 0, 0, undrafted=50)),
        "too little data",
        "undefined, not 0",
    ),
    "counts that cannot be": (
        replace(HEALTHY, counts=counts(50, 0, 60)),
        "too little data",
        "contradict each other",
    ),
    "no hooks": (
        evidence(ledger(path(400, 32), armed=False), None),
        "not observable",
        "no such symbol",
    ),
    "requests of one token": (
        replace(HEALTHY, counts=None, window=ledger(path(0, 9)), since_start=ledger(path(0, 9))),
        "too little data",
        "No speculative request arrived in the last 5 minutes: 20 were served",
    ),
    "dropped most": (
        replace(HEALTHY, counts=counts(3, 1, 2), dropped={"queue_full": 800}),
        "not observable",
        "of the 400 verify passes in the last 5 minutes 3 verify steps got through",
    ),
    "dropped, the starts of requests too": (
        replace(HEALTHY, counts=None, dropped={"queue_full": 800}, window_requests={c.KIND_WARMUP: 1}),
        "not observable",
        "of the 400 verify passes in the last 5 minutes no verify steps got through",
    ),
    "idle since records were dropped": (
        replace(IDLE, dropped={"queue_full": 800}),
        "idle",
        "no data, which is not health",
    ),
    "dropped everything": (
        replace(HEALTHY, counts=None, dropped={"queue full": 12}),
        "not observable",
        "dropped 12 records",
    ),
    "acceptance without a watched path": (
        evidence(ledger(path(400, 32), armed=False), counts(400, 776, 112)),
        "healthy",
        "only the acceptance speaks",
    ),
    "a long request from before the window": (
        replace(HEALTHY, window_requests={}),
        "healthy",
        "The draft helps",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_silence_has_its_own_word(case: str) -> None:
    given, word, reason = CASES[case]
    state = diagnose(given).state
    assert state.word == word
    assert reason in state.reason


def test_every_word_is_covered() -> None:
    assert {word for _, word, _ in CASES.values()} == set(WORDS)


def test_silence_is_judged_by_heartbeats_and_by_received_time() -> None:
    slow = replace(HEALTHY, heartbeat_s=30)
    assert diagnose(replace(slow, last_received=NOW - 80)).state.word == "healthy"
    assert diagnose(replace(slow, last_received=NOW - 91)).state.word == "tracer silent"
    assert diagnose(replace(HEALTHY, last_received=NOW - 14)).state.word == "healthy"


def test_an_ended_engine_keeps_no_finding() -> None:
    ended = diagnose(replace(SEED_FAULT, last_received=NOW - 3601))
    assert ended.findings == ()
    assert ended.state.word == "tracer silent"
    assert set(ended.unknown) == {rule.kind for rule in RULES}


def test_only_health_checks_never_make_zero_acceptance() -> None:
    given = replace(HEALTHY, counts=counts(900, 0, 900), requests={c.KIND_HEALTH_CHECK: 900})
    assert diagnose(given).findings == ()
