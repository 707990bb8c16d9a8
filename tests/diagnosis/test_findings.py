from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from evidence_literals import (
    CONFIG,
    HEALTHY,
    OFF_CONFIG,
    SEED_FAULT,
    H,
    counts,
    evidence,
    fed,
    ledger,
    path,
    with_path,
)
from specscope import convention as c
from specscope_server.diagnosis import Evidence, Finding, diagnose

PATH_RULES = {"draft_silent", "fc_bypassed", "zero_acceptance", "rank_divergence", "totals_differ"}
"""Those that these literals tell all of; the others want a history, slices, a reference, ..."""


def only(evidence: Evidence) -> Finding:
    findings = diagnose(evidence).findings
    assert len(findings) == 1, [f.kind for f in findings]
    return findings[0]


def test_healthy_pair_has_no_finding_and_nothing_unknown() -> None:
    said = diagnose(HEALTHY)
    assert said.findings == ()
    assert not PATH_RULES & set(said.unknown)
    assert said.state.word == "healthy"
    assert "2.94" in said.state.reason


class TestFcBypassed:
    def test_a_pass_that_never_fed_the_draft_skipped_no_fc(self) -> None:
        silent = with_path(
            replace(HEALTHY, counts=counts(400, 0, 0, undrafted=400)),
            extend=(432, 32),
            fc=(432, 32),
            fed_forward=(432, 32),
            self_forward=(1200, 0),
            propose=(400, 0),
        )
        (found,) = diagnose(silent).findings
        assert (found.kind, found.fault_class) == ("draft_silent", "F01")
        (other,) = diagnose(with_path(HEALTHY, extend=(432, 432), fc=(432, 32))).findings
        assert (other.kind, other.confidence) == ("fc_bypassed", "suspected")

    def test_seed_fault_is_named_certainly_and_before_its_symptom(self) -> None:
        said = diagnose(SEED_FAULT)
        assert [f.kind for f in said.findings] == ["fc_bypassed", "zero_acceptance"]
        root, symptom = said.findings
        assert (root.fault_class, root.confidence, root.severity) == ("F04", "certain", "critical")
        assert root.boundary == c.DRAFT_FC
        assert "0 of 795 target-fed passes" in root.sentence
        assert "128 numbers a token where its fc takes 384" in root.sentence
        assert "use_aux_hidden_state is false" in root.sentence
        assert "use_aux_hidden_state to true" in root.fix
        assert root.next_check.startswith("grep -n -A4 eagle_config models/tiny/draft/config.json ")
        assert symptom.confidence == "observation"
        assert "follows from another finding" in symptom.sentence
        assert said.state.word == "faulty"
        assert said.state.reason == root.sentence

    def test_a_hostile_path_stays_one_word_of_the_shell(self) -> None:
        hostile = {**OFF_CONFIG, "arguments": {"speculative_draft_model_path": "x'; rm -rf ~; '"}}
        check = diagnose(replace(SEED_FAULT, config=hostile)).findings[0].next_check
        assert shlex.split(check.partition("  #")[0])[-1] == "x'; rm -rf ~; '/config.json"

    def test_numbers_say_what_was_measured_where(self) -> None:
        root = diagnose(SEED_FAULT).findings[0]
        fc = root.numbers[0]
        assert (fc.value, fc.expected, fc.link) == (0, 795, "/engines/eng-1#boundary-draft.fc")
        by_name = {n.name: n for n in root.numbers}
        width = by_name["width fed to the draft after verify (763 passes)"]
        assert (width.value, width.expected) == (H, 3 * H)
        aux = by_name["aux hidden states handed over after prefill"]
        assert (aux.value, aux.expected) == (0, 3)
        assert by_name["example request"].link == "/requests/req-2"

    def test_rivals_are_ruled_out_by_numbers(self) -> None:
        ruled = {r.fault[:3]: r.by for r in diagnose(SEED_FAULT).findings[0].ruled_out}
        assert ruled["F01"] == "it proposed 763 times"
        assert ruled["F03"] == "the target verified 763 times"
        assert "384" in ruled["F05"]

    def test_found_by_health_checks_alone(self) -> None:
        few = ledger({**path(0, 3), (c.DRAFT_FC, c.TARGET_FED): (3, 0)})
        found = only(evidence(few, None, users=0, checks=3, extends=(fed(H, 3 * H, 0, 3, 0, "prefill"),)))
        assert (found.kind, found.confidence) == ("fc_bypassed", "certain")

    def test_without_a_width_three_passes_are_too_few_and_four_are_enough(self) -> None:
        three = with_path(evidence(ledger(path(3, 0)), None), fc=(3, 0))
        four = with_path(evidence(ledger(path(4, 0)), None), fc=(4, 0))
        assert diagnose(three).findings == ()
        assert "only 3 target-fed passes" in diagnose(three).unknown["fc_bypassed"]
        assert only(four).confidence == "certain"

    def test_hook_errors_without_a_width_leave_a_suspicion(self) -> None:
        bare = replace(with_path(HEALTHY, fc=(432, 0)), extends=(), hook_errors={"fc": 1})
        found = only(bare)
        assert (found.kind, found.confidence) == ("fc_bypassed", "suspected")
        assert "errors inside hooks since start" in {n.name for n in found.numbers}

    def test_width_proves_it_in_spite_of_hook_errors(self) -> None:
        assert diagnose(replace(SEED_FAULT, hook_errors={"map": 2})).findings[0].confidence == "certain"

    def test_extends_that_saw_fc_run_contradict(self) -> None:
        assert only(with_path(HEALTHY, fc=(432, 0))).confidence == "suspected"

    def test_one_aux_layer_names_the_width_test(self) -> None:
        single = replace(
            with_path(HEALTHY, fc=(432, 0)), extends=(fed(H, H, 1, 432, 0, "verify"),), config=CONFIG
        )
        found = only(single)
        assert found.confidence == "certain"
        assert "handed 128 numbers a token, like a token embedding" in found.sentence
        assert "exactly as wide as the token embedding" in found.fix

    def test_unknown_cause_points_at_the_target(self) -> None:
        found = diagnose(replace(SEED_FAULT, config=CONFIG)).findings[0]
        assert "use_aux_hidden_state is false" not in found.sentence
        assert "Make the target hand over" in found.fix

    def test_some_passes_only_is_a_suspicion_that_says_which(self) -> None:
        found = only(
            replace(
                with_path(HEALTHY, fc=(432, 400)),
                extends=(
                    fed(H, 3 * H, 0, 32, 0, "prefill"),
                    fed(3 * H, 3 * H, 3, 400, 400, "verify"),
                ),
            )
        )
        assert (found.kind, found.confidence) == ("fc_bypassed", "suspected")
        assert "400 of 432" in found.sentence
        assert "32 of 32 passes after prefill" in found.sentence

    def test_a_few_missing_crossings_are_no_gap(self) -> None:
        assert diagnose(with_path(HEALTHY, fc=(432, 428))).findings == ()

    def test_graph_that_ran_fc_on_another_width(self) -> None:
        graph = replace(
            HEALTHY,
            window=ledger(path(400, 32), mode=c.GRAPH),
            extends=(fed(H, 3 * H, 0, 432, None, "verify"),),
        )
        found = only(graph)
        assert (found.kind, found.confidence) == ("fc_bypassed", "suspected")
        assert "captured graph" in found.sentence
        assert "--disable-cuda-graph" in found.next_check

    def test_a_draft_without_fc_is_not_accused(self) -> None:
        lines = ledger({k: v for k, v in path(400, 32).items() if k[0] != c.DRAFT_FC})
        said = diagnose(evidence(lines, counts(400, 776, 112), config={"draft": {"hidden_size": H}}))
        assert said.findings == ()
        assert not PATH_RULES & set(said.unknown)

    def test_an_idle_engine_does_not_heal(self) -> None:
        idle = replace(
            SEED_FAULT,
            window=(),
            counts=None,
            extends=(),
            window_requests={},
        )
        said = diagnose(idle)
        assert [f.kind for f in said.findings] == ["fc_bypassed"]
        assert "since the engine started" in said.findings[0].sentence
        assert said.state.word == "faulty"

    def test_a_gap_of_the_past_does_not_count_once_passes_are_complete(self) -> None:
        assert diagnose(replace(HEALTHY, since_start=SEED_FAULT.since_start)).findings == ()


class TestDraftSilent:
    @pytest.mark.parametrize(
        ("changes", "accepted", "fault", "boundary", "words"),
        [
            pytest.param(
                {"propose": (400, 0), "extend": (432, 0), "fed_forward": (432, 0), "self_forward": (1200, 0)},
                counts(400, 0, 0, undrafted=400),
                "F01",
                c.DRAFT_PROPOSE,
                "The draft never ran",
                id="never drafts",
            ),
            pytest.param(
                {"propose": (400, 0), "self_forward": (1200, 0)},
                counts(400, 0, 0, undrafted=400),
                "F01",
                c.DRAFT_PROPOSE,
                "never proposes",
                id="extends, never proposes",
            ),
            pytest.param(
                {"fed_forward": (432, 0), "self_forward": (1200, 0), "fc": (0, 0)},
                counts(400, 0, 400),
                "F02",
                c.DRAFT_FORWARD,
                "proposals are filler",
                id="placeholders",
            ),
            pytest.param(
                {"self_forward": (1200, 0)},
                counts(400, 280, 120),
                "F02",
                c.DRAFT_FORWARD,
                "After its first token",
                id="later steps skipped",
            ),
            pytest.param(
                {"extend": (432, 0), "fc": (432, 0)},
                None,
                "F02",
                c.DRAFT_EXTEND,
                "without ever taking in",
                id="never fed",
            ),
            pytest.param(
                {"verify": (400, 0)},
                None,
                "F03",
                c.TARGET_VERIFY,
                "target never checks",
                id="never verified",
            ),
        ],
    )
    def test_where_the_path_stops_names_the_class(
        self, changes: dict[str, tuple[int, int]], accepted: object, fault: str, boundary: str, words: str
    ) -> None:
        found = diagnose(replace(with_path(HEALTHY, **changes), counts=accepted, extends=())).findings[0]
        assert (found.kind, found.fault_class, found.boundary) == ("draft_silent", fault, boundary)
        assert (found.confidence, found.severity) == ("certain", "critical")
        assert words in found.sentence

    def test_filler_without_any_draft_call_is_f02_not_f01(self) -> None:
        found = diagnose(
            replace(
                with_path(
                    HEALTHY,
                    propose=(400, 0),
                    extend=(432, 0),
                    fed_forward=(432, 0),
                    self_forward=(1200, 0),
                    fc=(432, 0),
                ),
                counts=counts(400, 0, 400),
                extends=(),
            )
        ).findings
        assert [(f.kind, f.fault_class) for f in found] == [("draft_silent", "F02"), ("zero_acceptance", "")]

    def test_accepted_tokens_contradict_a_missing_verify(self) -> None:
        found = only(with_path(HEALTHY, verify=(400, 0)))
        assert (found.fault_class, found.confidence) == ("F03", "suspected")
        assert "may be what is missing" in found.sentence

    def test_fc_crossings_contradict_missing_forwards(self) -> None:
        found = only(with_path(HEALTHY, fed_forward=(432, 0), self_forward=(1200, 0)))
        assert (found.fault_class, found.confidence) == ("F02", "suspected")

    def test_hook_errors_leave_a_suspicion(self) -> None:
        silent = replace(with_path(HEALTHY, verify=(400, 0)), counts=None, hook_errors={"verify": 3})
        assert only(silent).confidence == "suspected"

    def test_some_passes_only(self) -> None:
        found = only(with_path(HEALTHY, propose=(400, 300)))
        assert (found.fault_class, found.confidence, found.severity) == ("F01", "suspected", "warning")
        assert "300 of 400" in found.sentence

    def test_three_expected_crossings_are_too_few(self) -> None:
        few = replace(with_path(evidence(ledger(path(3, 1)), None), verify=(3, 0)), extends=())
        said = diagnose(few)
        assert said.findings == ()
        assert "draft_silent" in said.unknown


class TestZeroAcceptance:
    def test_healthy_boundaries_say_cause_not_found_and_what_was_ruled_out(self) -> None:
        found = only(replace(HEALTHY, counts=counts(400, 0, 400)))
        assert (found.kind, found.confidence, found.fault_class) == ("zero_acceptance", "observation", "")
        assert "No benefit; cause not found in the engine" in found.sentence
        assert "0 of 400 verify steps (0.0%)" in found.sentence
        assert {r.fault[:3] for r in found.ruled_out} == {"bad", "F01", "F02", "F03", "F04"}
        assert diagnose(replace(HEALTHY, counts=counts(400, 0, 400))).state.word == "suspect"

    def test_unobservable_path_is_not_called_complete(self) -> None:
        found = only(replace(HEALTHY, window=(), since_start=(), counts=counts(400, 0, 400)))
        assert "cannot be observed here" in found.sentence
        assert [r.fault for r in found.ruled_out] == ["bad luck"]

    def test_one_zero_is_nothing(self) -> None:
        said = diagnose(replace(HEALTHY, counts=counts(1, 0, 1)))
        assert said.findings == ()
        assert said.state.word == "too little data"

    def test_two_hundred_steps_of_nothing_are_enough(self) -> None:
        assert only(replace(HEALTHY, counts=counts(200, 0, 200))).kind == "zero_acceptance"

    @pytest.mark.parametrize("share", [0.18, 0.25, 0.36, 0.69, 0.9])
    def test_weak_and_good_drafts_are_never_accused(self, share: float) -> None:
        steps = 100_000
        accepted = int(steps * share)
        assert diagnose(replace(HEALTHY, counts=counts(steps, accepted, steps - accepted))).findings == ()

    def test_rare_but_long_accepts_are_a_benefit(self) -> None:
        assert diagnose(replace(HEALTHY, counts=counts(1000, 1000, 900, depth=15))).findings == ()

    def test_a_suspected_cause_is_named_as_suspected(self) -> None:
        found = diagnose(
            replace(with_path(HEALTHY, propose=(400, 300)), counts=counts(400, 0, 400), extends=())
        ).findings
        assert [f.kind for f in found] == ["draft_silent", "zero_acceptance"]
        assert "Suspected cause: draft silent in some passes" in found[1].sentence

    def test_dropped_records_are_stated_beside_it(self) -> None:
        found = only(replace(HEALTHY, counts=counts(400, 0, 400), dropped={"queue full": 7}))
        assert any(n.value == 7 for n in found.numbers)


def test_config_says_off_but_fc_runs_is_no_fault() -> None:
    assert diagnose(replace(HEALTHY, config=OFF_CONFIG)).findings == ()
