"""Rules as people edit them, and what an evaluation says of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from specscope.rollup import Counts
from specscope_server.alerts.catalogue import BUILT_IN, blank, built_in, effective
from specscope_server.alerts.judge import Outcome, Seen, Setting, judge
from specscope_server.alerts.quiet import silenced_by
from specscope_server.alerts.reading import Judged, read
from specscope_server.alerts.rules import FIRING, NO_DATA, OK, AlertRule, RuleError, changed
from specscope_server.api.rules import RuleFields
from specscope_server.diagnosis.model import Diagnosis, Evidence, Finding, State
from specscope_server.diagnosis.registry import KINDS
from specscope_server.store.model import AlertRow, AlertSubject, RuleRow, SilenceRow

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SUBJECT = AlertSubject("default", "e1", "chat-1", "tiny", "prod", 0.2)
HEALTHY = State("healthy", "The draft helps.")
SILENT = State("tracer silent", "Nothing was received.")
BYPASSED = Finding("fc_bypassed", "F04", "critical", "certain", "fc bypassed", "fc never ran.", ())
ZERO = Finding("zero_acceptance", "", "critical", "observation", "No benefit", "Nothing accepted.", ())
ITS_ZERO = replace(ZERO, root="fc_bypassed")
WRONG_LAYERS = Finding("aux_layers", "F05", "critical", "certain", "Wrong layers", "Other layers.", ())


def evidence(at: datetime = NOW, **changed: Any) -> Evidence:
    told: dict[str, Any] = {
        "engine_uid": "e1",
        "name": "chat-1",
        "now": at.timestamp(),
        "window_s": 300.0,
        "last_received": at.timestamp() - 1,
        "heartbeat_s": 5.0,
        "speculation": True,
        "config": {},
        "window": (),
        "since_start": (),
        "counts": Counts(400, 1600, 1600, 800, 400, 1200, 100, 0),
        "positions": (),
        "requests": {},
        "window_requests": {},
    }
    return Evidence(**(told | changed))


def judged(
    *found: Finding, state: State = HEALTHY, subject: AlertSubject = SUBJECT, at: datetime = NOW, **told: Any
) -> Judged:
    return Judged(subject, evidence(at, **told), Diagnosis(state, found))


def rule(name: str) -> AlertRule:
    found = built_in(name)
    assert found is not None
    return found


class World:
    """One engine evaluated again and again, with what people set meanwhile."""

    def __init__(self, rules: tuple[AlertRule, ...] = BUILT_IN) -> None:
        self.rules = rules
        self.silences: tuple[SilenceRow, ...] = ()
        self.rows: dict[str, AlertRow] = {}
        self.now = NOW
        self.told: list[tuple[str, str]] = []
        self.last = Outcome()

    def see(self, *found: Finding, seconds: int = 1, state: State = HEALTHY) -> World:
        self.now += timedelta(seconds=seconds)
        one = judged(*found, state=state, at=self.now)
        setting = Setting(self.rules, self.silences, ("to",))
        seen = Seen(SUBJECT, {300.0: (one.evidence, one.said)})
        self.last = judge(setting, seen, self.rows, self.now)
        self.rows |= {row.rule: row for row in self.last.rows}
        self.told += [(new.rule, new.state) for new in self.last.deliveries]
        return self

    def silence(self, rule: str = "", engine: str = "", hours: float = 1) -> None:
        ends = self.now + timedelta(hours=hours)
        self.silences = (SilenceRow("s", rule, engine, self.now, ends, self.now, "ada", "deploy"),)


class TestEditing:
    @pytest.mark.parametrize(
        ("told", "message"),
        [
            ({"nonsense": 1}, "unknown field nonsense"),
            ({"title": ""}, "title: must not be empty"),
            ({"title": "a\nb"}, "title: a text"),
            ({"severity": "loud"}, "severity: one of critical, warning, info"),
            ({"watches": "stars"}, "watches: one of"),
            ({"kinds": []}, "at least one kind"),
            ({"kinds": ["Not A Kind"]}, "kinds: up to"),
            ({"watches": "ingest lag", "kinds": []}, "threshold: ingest lag"),
            ({"watches": "tracer silent"}, "kinds: a rule that watches 'tracer silent' has none"),
            ({"window_s": 1}, "window_s: a number from 60"),
            ({"for_s": -1}, "for_s: a number from 0"),
            ({"for_s": float("nan")}, "for_s: a number"),
            ({"for_s": True}, "for_s: a number"),
            ({"min_steps": 1.5}, "min_steps: a whole number"),
            ({"repeat_s": 10}, "repeat_s: 0 \\(never\\) or at least 300"),
            ({"enabled": "yes"}, "enabled: true or false"),
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, told: dict[str, Any], message: str) -> None:
        with pytest.raises(RuleError, match=message):
            changed(rule("zero_acceptance"), told)

    @pytest.mark.parametrize("told", [{"min_steps": True}, {"for_s": "60"}, {"enabled": "yes"}, {"title": 1}])
    def test_a_body_of_other_types_is_refused_and_not_made_to_fit(self, told: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match=next(iter(told))):
            RuleFields.model_validate(told)
        assert RuleFields.model_validate({"window_s": 300, "min_steps": 5}).window_s == 300

    def test_a_rule_comes_back_from_its_body_as_it_was(self) -> None:
        for one in BUILT_IN:
            assert changed(blank(one.name), one.body) == one

    def test_a_stored_rule_wins_and_one_that_cannot_be_read_is_left_out(self) -> None:
        stored = [
            RuleRow("too_good", NOW, {"enabled": False}),
            RuleRow("collapse", NOW, {"from": "the future"}),
            RuleRow("mine", NOW, {"title": "Mine", "kinds": ["zero_acceptance"]}),
        ]
        found = {one.name: one for one in effective(stored)}
        assert not found["too_good"].enabled
        assert found["collapse"] == rule("collapse")
        assert found["mine"].kinds == ("zero_acceptance",)

    def test_patterns_choose_engines(self) -> None:
        for told, applies in (
            ({"engine": "chat-*"}, True),
            ({"engine": "e1"}, True),
            ({"engine": "code-*"}, False),
            ({"model": "tin?"}, True),
            ({"model": "big"}, False),
            ({"environment": "prod", "engine": "*"}, True),
            ({"environment": "staging"}, False),
            ({"enabled": False}, False),
        ):
            assert changed(rule("zero_acceptance"), told).applies(SUBJECT) is applies, told

    def test_a_bracket_in_a_pattern_is_itself(self) -> None:
        named = replace(SUBJECT, name="gpu[1] at [::1]:30000")
        for pattern, chosen in (
            ("gpu[1] at [::1]:30000", True),
            ("gpu[1]*", True),
            ("gpu[?] at *", True),
            ("gpu[!2]*", False),
        ):
            assert changed(rule("zero_acceptance"), {"engine": pattern}).applies(named) is chosen, pattern
            silence = SilenceRow("s", "", pattern, NOW, NOW, NOW, "", "")
            assert (silenced_by([silence], "collapse", named) is silence) is chosen, pattern


class TestReading:
    def test_too_few_steps_are_no_data_even_for_a_finding(self) -> None:
        strict = replace(rule("zero_acceptance"), min_steps=1000)
        reading = read(strict, BUILT_IN, judged(ZERO), {})
        assert (reading.state, reading.ended) == (NO_DATA, False)
        assert "400 verify steps in 300 s, and this rule wants 1000" in reading.reason

    def test_a_rule_may_want_certainty(self) -> None:
        suspected = replace(BYPASSED, confidence="suspected")
        strict = replace(rule("silent_path"), certain_only=True)
        assert read(strict, BUILT_IN, judged(suspected), {}).state == OK
        assert read(strict, BUILT_IN, judged(BYPASSED), {}).state == FIRING

    def test_a_fault_that_no_rule_names_fires_the_rule_for_others(self) -> None:
        reading = read(rule("other_fault"), BUILT_IN, judged(WRONG_LAYERS, BYPASSED, ZERO), {})
        assert (reading.state, reading.findings) == (FIRING, (WRONG_LAYERS,))
        named = AlertRule("layers", "Layers", kinds=("aux_layers",))
        assert read(rule("other_fault"), (*BUILT_IN, named), judged(WRONG_LAYERS), {}).state == OK

    def test_the_rule_for_others_ends_only_when_what_it_fired_for_is_excluded(self) -> None:
        memo = read(rule("other_fault"), BUILT_IN, judged(WRONG_LAYERS), {}).memo
        unknown = Judged(SUBJECT, evidence(), Diagnosis(HEALTHY, (), {"aux_layers": "no reference"}))
        assert read(rule("other_fault"), BUILT_IN, unknown, memo).state == NO_DATA
        assert read(rule("other_fault"), BUILT_IN, judged(), memo).state == OK

    def test_a_silent_tracer(self) -> None:
        assert read(rule("tracer_silent"), BUILT_IN, judged(), {}).state == OK
        assert read(rule("tracer_silent"), BUILT_IN, judged(state=SILENT), {}).state == FIRING
        reading = read(rule("zero_acceptance"), BUILT_IN, judged(ZERO, state=SILENT), {})
        assert (reading.state, reading.ended) == (NO_DATA, True)

    def test_an_engine_that_ended_in_order_is_no_silent_tracer(self) -> None:
        ended = judged(ZERO, state=State("ended", "It was shut down."), dropped={"queue_full": 3})
        for name in ("tracer_silent", "tracer_dropping", "ingest_lag", "zero_acceptance"):
            reading = read(rule(name), BUILT_IN, ended, {})
            assert (reading.state, reading.ended, reading.reason) == (
                NO_DATA, True, "ended: It was shut down."
            )  # fmt: skip

    def test_a_kind_that_nothing_looks_for_is_no_data_and_never_ok(self) -> None:
        odd = AlertRule("mine", "Mine", kinds=("fc_bypassed", "from_tomorrow"))
        reading = read(odd, BUILT_IN, judged(), {})
        assert (reading.state, reading.ended) == (NO_DATA, True)
        assert "no finding of the kind from_tomorrow" in reading.reason
        assert read(odd, BUILT_IN, judged(BYPASSED), {}).state == FIRING
        # What the rule for other faults fired for may be gone with the next version.
        other = read(rule("other_fault"), BUILT_IN, judged(), {"kinds": ["from_yesterday"]})
        assert (other.state, other.ended) == (NO_DATA, True)

    def test_every_kind_of_the_built_in_rules_is_looked_for(self) -> None:
        assert {kind for one in BUILT_IN for kind in one.kinds} <= KINDS

    def test_dropping_fires_on_growth_and_not_on_what_was_lost_before_anybody_looked(self) -> None:
        dropping = rule("tracer_dropping")
        first = read(dropping, BUILT_IN, judged(dropped={"queue_full": 500}), {})
        assert first.state == OK
        second = read(
            dropping, BUILT_IN, judged(dropped={"queue_full": 507}, at=NOW + timedelta(seconds=2)), first.memo
        )
        assert second.state == FIRING
        assert "dropped 7 records" in second.reason
        assert "507 queue_full" in second.reason
        later = read(
            dropping,
            BUILT_IN,
            judged(dropped={"queue_full": 507}, at=NOW + timedelta(seconds=303)),
            second.memo,
        )
        assert later.state == OK

    def test_lag_is_the_delay_of_what_arrives(self) -> None:
        lag = rule("ingest_lag")
        assert read(lag, BUILT_IN, judged(), {}).state == OK
        late = replace(SUBJECT, delay_s=95.0)
        assert "waited 95 s" in read(lag, BUILT_IN, judged(subject=late), {}).reason
        nothing = replace(SUBJECT, delay_s=None)
        assert read(lag, BUILT_IN, judged(subject=nothing), {}).state == NO_DATA


class TestWhoIsTold:
    def test_a_consequence_is_folded_into_its_root_and_told_alone_once_that_is_gone(self) -> None:
        world = World().see(BYPASSED, ITS_ZERO)
        assert world.told == [("silent_path", FIRING)]
        assert world.last.deliveries[0].payload["consequences"] == ["Zero acceptance"]
        assert world.rows["zero_acceptance"].quiet == "follows from: Silent path"
        for _ in range(62):
            world.see(ZERO)
        assert world.told == [("silent_path", FIRING), ("zero_acceptance", FIRING), ("silent_path", OK)]

    def test_what_names_no_root_is_told_beside_a_fault(self) -> None:
        assert World().see(BYPASSED, ZERO).told == [("silent_path", FIRING), ("zero_acceptance", FIRING)]

    def test_all_that_follows_from_a_fault_is_one_notification(self) -> None:
        following = tuple(
            replace(ZERO, kind=kind, root="aux_layers")
            for kind in ("zero_acceptance", "collapse", "drift", "expectation", "pays_off")
        )
        world = World()
        for _ in range(11):  # that speculation does not pay must hold for ten minutes
            world.see(WRONG_LAYERS, *following, seconds=60)
        assert world.told == [("other_fault", FIRING)]
        firing = {name for name, row in world.rows.items() if row.state == FIRING}
        assert firing == {"other_fault", "zero_acceptance", "collapse", "below_promise", "no_gain"}

    def test_what_was_never_told_has_no_end_to_tell(self) -> None:
        world = World().see(BYPASSED, ITS_ZERO)
        for _ in range(62):
            world.see()
        assert world.told == [("silent_path", FIRING), ("silent_path", OK)]

    def test_a_silence_keeps_a_firing_quiet_and_its_end_tells_what_still_fires(self) -> None:
        world = World()
        world.silence(rule="silent_*", engine="chat-*")
        world.see(BYPASSED)
        assert (world.told, world.rows["silent_path"].state) == ([], FIRING)
        assert world.rows["silent_path"].quiet.startswith("silenced by ada until 2026-01-01 13:00")
        world.silences = ()
        world.see(BYPASSED).see(BYPASSED)
        assert world.told == [("silent_path", FIRING)]

    def test_the_end_of_what_was_told_is_told_in_a_silence_too(self) -> None:
        world = World().see(BYPASSED)
        world.silence()
        for _ in range(62):
            world.see()
        assert world.told == [("silent_path", FIRING), ("silent_path", OK)]

    def test_a_silence_of_another_engine_or_rule_changes_nothing(self) -> None:
        for rule, engine in (("", "code-*"), ("collapse", "")):
            world = World()
            world.silence(rule, engine)
            assert world.see(BYPASSED).told == [("silent_path", FIRING)]

    def test_a_rule_that_is_switched_off_or_deleted_ends_and_says_so(self) -> None:
        world = World().see(BYPASSED)
        world.rules = tuple(replace(r, enabled=r.name != "silent_path") for r in BUILT_IN)
        world.see(BYPASSED)
        assert world.told == [("silent_path", FIRING), ("silent_path", NO_DATA)]
        assert world.rows["silent_path"].reason == "the rule is off for this engine"
        # Of what no rule names any more the rule for other faults speaks.
        mine = AlertRule("mine", "Mine", kinds=("zero_acceptance",))
        world = World((mine,)).see(ZERO)
        world.rules = ()
        assert world.see(ZERO).told == [("mine", FIRING), ("mine", NO_DATA)]

    def test_the_evidence_of_a_change_is_frozen_with_it(self) -> None:
        world = World().see(BYPASSED, ZERO)
        kept = world.last.evidence["e1", "silent_path"]
        assert (kept["verify_steps"], kept["acceptance_length"]) == (400, 3.0)
        assert [f["kind"] for f in kept["findings"]] == ["fc_bypassed"]
        assert kept["others"] == ["zero_acceptance"]

    def test_what_does_not_change_is_stored_only_every_ten_seconds(self) -> None:
        world = World().see()
        assert len(world.last.rows) == len(BUILT_IN)
        stored = 0
        for _ in range(9):
            stored += len(world.see().last.rows)
        assert stored == 0
        assert len(world.see().last.rows) == len(BUILT_IN)
