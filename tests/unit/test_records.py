"""Records cross to the exporter process and come back equal."""

import marshal

import pytest
from specscope import records as r

UID = "0" * 32
EXPECTED = {("target.verify", ""): 1}
CROSSED = {("target.verify", "", "eager"): 1}
ALL: list[r.Record] = [
    r.EngineFacts(1, "start", "m", "sglang", "0.5.23", True, {"target": {"layers": [1, 2]}, "vocab_size": 9}),
    r.RequestStarted(1, UID, "rid", "user", 2, 3),
    r.RequestStarted(1, UID, "rid", "warmup", 2, 3, 0.5, 100, (1 << 127, 1 << 63), (1, 2, 3)),
    r.VerifyStep(1, 2, "eager", 1, (UID,), (0,), (9,), (3,), (3,), (2,), (1,), (3,), EXPECTED, CROSSED),
    r.VerifyStep(
        t_ns=1,
        step=2,
        mode="graph",
        batch_size=2,
        uids=(UID, UID),
        rows=(0, 1),
        context=(9, 9),
        drafted_depth=(2, 0),
        drafted_nodes=(3, 0),
        accepted=(1, 0),
        bonus=(1, 1),
        committed=(2, 1),
        expected=EXPECTED,
        crossed=CROSSED,
        overshoot=(False, True),
        draft_tokens=((5, 6, 7), ()),
        parents=((-1, -1, 0), ()),
        accepted_path=((0,), ()),
        output_ids=((5, 8), (1,)),
        weight_version=4,
    ),
    r.DraftExtend(
        t_ns=1,
        step=2,
        after="verify",
        mode="eager",
        uids=(UID, UID),
        fed_width=64,
        dtype="bfloat16",
        aux_states=None,
        fc_in=None,
        fc_ran=None,
        expected=EXPECTED,
        crossed=CROSSED,
    ),
    r.HiddenPass(
        t_ns=1,
        step=2,
        after="verify",
        mode="eager",
        uids=(UID, UID),
        positions=(9, 12),
        looks=(
            r.HiddenLook("draft.extend", "target_fed", 0, 3, (0, 4), (3, 1), bytes(504), projections=True),
            r.HiddenLook("draft.fc.in", "target_fed", 0, 3, (0, 4), (3, 1), same_as="draft.extend"),
            r.HiddenLook("draft.carry", "self_fed", 1, 1, (0, 1), (1, 1), bytes(56), summed=True),
        ),
    ),
    r.PrefillPass(1, 2, (UID,), (0,), EXPECTED, CROSSED),
    r.RequestFinished(1, UID, "finished", "stop", 7),
    r.RequestFinished(1, UID, "aborted", "abort", 7, 0.25, 0.5),
    r.RankSteps(1, 2, (5, 6), (7, None), (8, 0xFFFFFFFF)),
    r.RankSteps(1, 2, (5, 6), (7, None), (8, 0xFFFFFFFF), (None, (-3, 1, 2, 3, 4, 5, 6, 7, 8))),
    r.RequestFinished(1, UID, "finished", "stop", 7, engine_verify_steps=3, engine_accepted=0),
]


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.TAG)
def test_round_trip_through_marshal(record: r.Record) -> None:
    assert r.from_tuple(marshal.loads(marshal.dumps(r.to_tuple(record)))) == record


@pytest.mark.parametrize(
    ("values", "message"),
    [((), "unknown record"), (("nonsense", 1), "unknown record"), (("prefill", 1), "1 fields, 6 wanted")],
)
def test_what_is_no_record_is_refused(values: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        r.from_tuple(values)
