"""Passes that ended, as records: counted against the contract of their time, and told with their looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specscope import convention as c
from specscope.contracts import VERIFY, Contract, contract
from specscope.engines.sglang import passes
from specscope.engines.sglang.loaded import WITHOUT_STEPS, Loaded
from specscope.engines.sglang.looks import Looks
from specscope.engines.sglang.passes import Counts, Pass
from specscope.records import DraftExtend, PrefillPass, VerifyBatch, VerifyStep

if TYPE_CHECKING:
    from specscope.recorder import Recorder


class Telling:
    """Tells the passes of one scheduler, on its only thread."""

    def __init__(self, recorder: Recorder, loaded: Loaded, looks: Looks) -> None:
        """Tell those of ``loaded``, with what ``looks`` saw in them."""
        self._recorder, self._loaded, self._looks = recorder, loaded, looks
        self._look = looks.guard.run
        self._counting = passes.Counting()
        self._shape = loaded.shape()
        self._told_steps = self._num_steps()

    def agreed(self) -> Contract:
        """Return what a pass must cross as the engine is set up now."""
        steps = self._num_steps()
        if steps != self._told_steps:
            self._told_steps, self._shape = steps, self._loaded.shape()
        return contract(self._loaded.algorithm, self._shape)

    def counts(self, one: Pass) -> Counts:
        """Return what a pass had to cross and crossed."""
        return self._counting.of(one, one.agreed or self.agreed())

    def steps(self) -> int | None:
        """Return how deep a draft reaches; ``None``: the algorithm proposes in one go."""
        return None if self._loaded.algorithm in WITHOUT_STEPS else self._shape.steps

    def prefill(self, one: Pass) -> None:
        """Tell of a prefill."""
        counts = self.counts(one)
        self._tell(PrefillPass(one.t_ns, one.step, one.uids, one.cached, counts.expected, counts.crossed))
        self._tell_looks(one)
        self._tell_extend(one, counts)

    def committed(self, one: Pass, record: VerifyBatch, counts: Counts) -> None:
        """Tell of a verify pass whose commit was seen."""
        self._tell(record)
        self._tell_looks(one, record.accepted, record.before, record.over)
        self._tell_extend(one, counts)

    def give_up(self, one: Pass) -> None:
        """Tell of a verify pass whose commit was not seen: its counts alone."""
        one.looking = None
        counts = self.counts(one)
        self._tell(passes.given_up(one, counts))
        self._tell_extend(one, counts)

    def _num_steps(self) -> Any:
        """Draft steps as they stand; the workers of DFLASH and DSPARK do not have the attribute."""
        return getattr(self._loaded.worker, "speculative_num_steps", None)

    def _tell_looks(
        self,
        one: Pass,
        accepted: Sequence[int] = (),
        before: Sequence[int] = (),
        over: Sequence[bool] | None = None,
    ) -> None:
        if one.looking is not None:
            after = "verify" if one.kind == VERIFY else "prefill"
            graph = one.extend is not None and one.extend.graph
            self._look(self._looks.tell, one, after, c.GRAPH if graph else c.EAGER, accepted, before, over)
        elif self._looks.late:
            # The next pass that is looked at may be far: a request should have its rows before it ends.
            self._look(self._looks.flush)

    def _tell_extend(self, one: Pass, counts: Counts) -> None:
        if one.extend is not None:
            self._tell(passes.extend_record(one, one.extend, self._loaded.fc_takes, counts))

    def _tell(self, record: PrefillPass | VerifyBatch | VerifyStep | DraftExtend) -> None:
        self._recorder.ledger.add(record.expected, record.crossed)
        if self._loaded.emits:
            self._recorder.emit(record)
