"""The adapter over SGLang's own shapes, for algorithms that SGLang 0.5.23 does not start without a GPU.

Run by ``test_sglang_shapes.py`` under the interpreter that has SGLang. Prints a JSON object: the traceback of
each check, empty where it passed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from check_report import report
from shapes_workers import DFlash, DSpark, Frozen, RaggedDSpark, Uno, UnoTree
from shapes_world import Run


def dflash_block_is_a_chain_without_accept_index() -> None:
    """Drafts, path, bonus and outputs of each row; the proposal is concluded from what is verified."""
    run = Run("DFLASH", DFlash())
    (step,) = run.steps()
    assert step.drafted_nodes == step.drafted_depth == (3, 3)
    assert step.draft_tokens == ((22, 23, 24), (32, 33, 34))
    assert step.roots == (21, 31)
    assert step.accepted == (2, 0) and step.bonus == (1, 1) and step.committed == (3, 1)
    assert step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 99), (98,)) and step.bonus_ids == (99, 98)
    assert run.observed() == {
        "draft.propose derived": 1,
        "target.verify eager": 1,
        "engine.commit eager": 1,
    }


def dflash_steps_are_told_apart_under_the_overlap_schedule() -> None:
    """Each step is committed after the next was launched (``scheduler.py``, ``event_loop_overlap``)."""
    steps = Run("DFLASH", DFlash(), steps=3, late=True).steps()
    assert [step.step for step in steps] == [2, 3, 4]
    assert [step.committed for step in steps] == [(3, 1)] * 3
    assert [step.context for step in steps] == [(4, 4), (7, 5), (10, 6)]


def a_request_that_is_over_is_in_one_more_step() -> None:
    """An overshoot row: SGLang resolves its tokens, and nobody gets them."""
    worker = DFlash()

    class Ends(Run):
        def _commit(self, batch: Any, result: Any) -> None:
            super()._commit(batch, result)
            self.scheduler.reqs[1].finished_reason = SimpleNamespace(type="length")

    first, second = Ends("DFLASH", worker, steps=2, late=True).steps()
    assert first.overshoot == (False, False) and first.committed == (3, 1)
    assert second.overshoot == (False, True) and second.committed == (3, 0)


def dspark_static_is_a_chain() -> None:
    """As DFLASH, with the counts that DSpark adds."""
    run = Run("DSPARK", DSpark())
    (step,) = run.steps()
    assert step.draft_tokens == ((22, 23, 24), (32, 33, 34))
    assert step.accepted == (2, 0) and step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 99), (98,))
    assert set(run.observed()) == {"draft.propose derived", "target.verify eager", "engine.commit eager"}


def dspark_ragged_rows_are_never_read_across() -> None:
    """4 + 2 packed tokens are no two rows of 3: what was accepted is told, drafts only where right."""
    run = Run("DSPARK", RaggedDSpark())
    (step,) = run.steps()
    assert step.accepted == (2, 0) and step.committed == (3, 1)
    assert step.output_ids == ((22, 23, 99), (98,))
    assert step.draft_tokens in (None, ((22, 23, 24), (32,)))
    assert step.drafted_nodes in ((3, 3), (3, 1))
    assert set(run.observed()) == {"draft.propose derived", "target.verify eager", "engine.commit eager"}


def uno_root_and_correction_are_no_drafts() -> None:
    """Two tokens of a row are not drafted: the clean root and the correction."""
    run = Run("UNO", Uno())
    (step,) = run.steps()
    assert step.roots == (22, 32) and step.draft_tokens == ((23, 24, 25), (33, 34, 35))
    assert step.accepted == (2, 0) and step.bonus == (2, 2) and step.committed == (4, 2)
    assert step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 24, 77), (32, 88)) and step.bonus_ids == (77, 88)
    assert run.observed() == {"draft.propose eager": 1, "target.verify eager": 1, "engine.commit eager": 1}


def uno_tree_is_read_as_a_tree() -> None:
    """Its nodes are those of the verify input, its width in the result is another."""
    (step,) = Run("UNO", UnoTree()).steps()
    assert step.parents == ((-1, -1, 1), (-1, -1, 1)) and step.drafted_depth == (2, 2)
    assert step.drafted_nodes == (3, 3) and step.draft_tokens == ((23, 24, 25), (33, 34, 35))
    assert step.accepted == (2, 0) and step.accepted_path == ((1, 2), ())
    assert step.output_ids == ((22, 24, 25, 77), (32, 88))


def frozen_kv_mtp_drafts_as_often_as_it_has_steps() -> None:
    """Its first forward is fed by the target inside the proposal; its draft extend runs no model."""
    run = Run("FROZEN_KV_MTP", Frozen(), steps=2)
    steps = run.steps()
    assert [step.accepted for step in steps] == [(1, 0)] * 2
    assert steps[0].draft_tokens == ((22, 23, 24), (32, 33, 34))
    seen = run.observed()
    assert seen["draft.forward self_fed eager"] == 2 * 3
    assert seen["draft.extend target_fed eager"] == 3
    assert "draft.forward target_fed eager" not in seen


def steps_that_adapt_at_the_commit_are_those_of_the_next_step() -> None:
    """SGLang changes the number of steps while it resolves a result (``on_verify_complete_cpu``)."""
    worker = Frozen(steps=1)

    class Adapts(Run):
        def _commit(self, batch: Any, result: Any) -> None:
            def adapt(*_args: Any, **_more: Any) -> None:
                worker.speculative_num_steps = worker.draft_worker.steps = 3

            self.scheduler.batch_result_processor.model_worker.on_verify_complete_cpu = adapt
            super()._commit(batch, result)

    run = Adapts("FROZEN_KV_MTP", worker, steps=2)
    assert [step.drafted_nodes for step in run.steps()] == [(1, 1), (3, 3)]
    assert run.observed()["draft.forward self_fed eager"] == 1 + 3


CHECKS: tuple[Callable[[], None], ...] = (
    dflash_block_is_a_chain_without_accept_index,
    dflash_steps_are_told_apart_under_the_overlap_schedule,
    a_request_that_is_over_is_in_one_more_step,
    dspark_static_is_a_chain,
    dspark_ragged_rows_are_never_read_across,
    uno_root_and_correction_are_no_drafts,
    uno_tree_is_read_as_a_tree,
    frozen_kv_mtp_drafts_as_often_as_it_has_steps,
    steps_that_adapt_at_the_commit_are_those_of_the_next_step,
)


if __name__ == "__main__":
    report(CHECKS)
