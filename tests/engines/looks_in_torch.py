"""Checks of the looks at hidden states: row to request under batching, padding, chunks and trees.

Run by ``test_sglang_looks.py`` under the interpreter that has torch; see ``check_report.py``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from check_report import report
from specscope import convention as c
from specscope import hidden, tensorstats
from specscope.contracts import PREFILL, VERIFY
from specscope.copies import Copies, Copy
from specscope.engines.sglang import looks as module
from specscope.engines.sglang.install import install_fc
from specscope.engines.sglang.looks import Looks
from specscope.engines.sglang.passes import Drafted, Pass
from specscope.records import HiddenLook, HiddenPass, from_tuple, to_tuple
from specscope.settings import Settings

torch: Any = importlib.import_module("torch")
H = 16
SLOTS = 3


class Recorder(SimpleNamespace):
    """Holds what is emitted; ``queue`` is what the exporter has not taken yet."""

    emitted: int
    queue: list[Any]

    def emit(self, record: Any) -> None:
        self.queue.append(from_tuple(to_tuple(record)))
        self.emitted += 1


def a_scheduler(
    detail: str = "full", *, emits: bool = True, ranks: Any = None, fc: Any = None
) -> tuple[Looks, Recorder]:
    recorder = Recorder(
        settings=Settings(endpoint="http://x", detail=detail),
        ranks=ranks,
        missed=Counter[str](),
        queue=[],
        emitted=0,
    )
    loaded = SimpleNamespace(
        emits=emits,
        target_hidden=H,
        worker=SimpleNamespace(topk=1),
        fc=torch.nn.Linear(SLOTS * H, H) if fc is None else fc,
    )
    return Looks(cast("Any", recorder), cast("Any", loaded), Copies(recorder.missed)), recorder


def a_pass(kind: str, uids: str, *, step: int = 1, chain: bool = True, nodes: int = 4) -> Pass:
    one = Pass(kind=kind, step=step, t_ns=5, reqs=[], uids=tuple(uids), prompt=(10,) * len(uids))
    if kind == VERIFY:
        one.drafted = Drafted(nodes=nodes, depth=nodes - 1, chain=chain)
    return one


def states(rows: int, slots: int = SLOTS) -> Any:
    return torch.randn(rows, slots * H) * 3 + 1


def left(states: Any) -> Any:
    return SimpleNamespace(hidden_states=states)


def batch(lengths: Iterable[int], before: Iterable[int] = ()) -> Any:
    each = list(lengths)
    return SimpleNamespace(extend_lens=each, prefix_lens=list(before) or [0] * len(each))


def of(record: HiddenPass, place: str, uid: str, draft_step: int = 0) -> np.ndarray[Any, Any]:
    """Return the numbers [rows, slots, columns] of one request."""
    look = the(record, place, draft_step)
    at = record.uids.index(uid)
    columns = len(tensorstats.COLUMNS) + hidden.PROJECTIONS * look.projections
    data = np.frombuffer(look.data, dtype="<f4").reshape(-1, look.slots, columns)
    return data[look.starts[at] :][: look.counts[at]]


def the(record: HiddenPass, place: str, draft_step: int = 0) -> HiddenLook:
    (found,) = [one for one in record.looks if (one.place, one.draft_step) == (place, draft_step)]
    return found


def wanted(rows: Any, slots: int = SLOTS) -> np.ndarray[Any, Any]:
    """Return mean, variance and largest of rows [n, slots * H] by their definition."""
    x = rows.double().numpy().reshape(len(rows), slots, H)
    return np.stack((x.mean(2), x.var(2), np.abs(x).max(2)), axis=2)


def close(found: np.ndarray[Any, Any], rows: Any, slots: int = SLOTS) -> bool:
    return np.allclose(found[:, :, :3], wanted(rows, slots), rtol=1e-5, atol=1e-5)


def prefill(order: str, lengths: dict[str, int], tensors: dict[str, Any], pad: int = 0) -> HiddenPass:
    looks, recorder = a_scheduler()
    one = a_pass(PREFILL, order)
    looks.open(one)
    fed = torch.cat([tensors[uid] for uid in order] + [torch.full((pad, SLOTS * H), torch.nan)])
    counts = tuple(lengths[uid] for uid in order)
    starts = tuple(sum(counts[:at]) for at in range(len(counts)))
    looks.packed(one, fed)
    looks.fed_prefill(one, fed, batch(counts, range(len(order))))
    looks.entered_fc(one, fed)
    looks.left_fc(one, fed[:, :H] * 2)
    looks.extended(one, left(fed[[s + n - 1 for s, n in zip(starts, counts, strict=True)], :H]))
    looks.tell(one, "prefill", c.EAGER, (), ())
    (record,) = recorder.queue
    return record


def check_rows_of_a_prefill_belong_to_their_requests_in_any_order() -> None:
    lengths = {"a": 3, "b": 1, "c": 5, "d": 2}
    tensors = {uid: states(rows) for uid, rows in lengths.items()}
    for order in ("abcd", "dcba", "bdac"):
        for pad in (0, 6):
            record = prefill(order, lengths, tensors, pad)
            for uid in order:
                assert close(of(record, hidden.FED, uid), tensors[uid])
                assert close(of(record, hidden.FC_OUT, uid), tensors[uid][:, :H] * 2, 1)
                assert close(of(record, hidden.CARRY, uid), tensors[uid][-1:, :H], 1)
            assert {one.place for one in record.looks if one.same_as == hidden.FED} == {
                hidden.AUX_CAPTURE,
                hidden.FC_IN,
            }
            assert record.positions == (0, 1, 2, 3)


def check_of_a_verify_pass_only_kept_rows_count() -> None:
    looks, recorder = a_scheduler()
    accepted = [0, 3, 1]
    for order in ((0, 1, 2), (2, 0, 1)):
        blocks = [states(4) for _ in accepted]
        one = a_pass(VERIFY, "abc")
        looks.open(one)
        looks.started(one, torch.cat([blocks[at][2:3, :H] for at in order]))
        fed = torch.cat([blocks[at] for at in order])
        for row, at in enumerate(order):  # what is behind the kept rows is rubbish
            fed[4 * row + 1 + accepted[at] : 4 * row + 4] = torch.nan
        looks.carried(one, left(torch.cat([blocks[at][:1, :H] for at in order])))
        looks.embedded(one, torch.cat([blocks[at][1:2, :H] for at in order]), target_fed=False)
        looks.fed_verify(one, fed, 4)
        looks.embedded(one, fed[:, :H].contiguous(), target_fed=True)
        looks.extended(one, SimpleNamespace(next_draft_input=left(fed[::4, :H])))
        looks.tell(one, "verify", c.EAGER, [accepted[at] for at in order], [7, 8, 9])
        record = recorder.queue[-1]
        assert record.positions == (16, 17, 18)  # prompt of 10, then so many output tokens, the last of them
        for uid, at in zip("abc", order, strict=True):
            kept = blocks[at][: accepted[at] + 1]
            assert close(of(record, hidden.FED, uid), kept)
            assert close(of(record, hidden.EMBEDDING, uid), kept[:, :H], 1)
            assert close(of(record, hidden.START, uid), blocks[at][2:3, :H], 1)
            assert close(of(record, hidden.CARRY, uid, 1), blocks[at][:1, :H], 1)
            assert close(of(record, hidden.EMBEDDING, uid, 2), blocks[at][1:2, :H], 1)
        assert the(record, hidden.CARRY, 1).source == c.SELF_FED


def check_of_a_tree_the_accepted_path_is_looked_at_before_and_after_compaction() -> None:
    looks, recorder = a_scheduler()
    cast("Any", looks)._loaded.worker = SimpleNamespace(topk=3)
    one = a_pass(VERIFY, "ab", chain=False, nodes=6)
    looks.open(one)
    packed = states(12)
    looks.packed(one, packed)
    path = torch.tensor([[0, 3, 5], [6, 8, -1]], dtype=torch.int32)
    looks.accepted(one, (None, None, path))
    fed = packed.clone()  # ``_compact_accept_to_front``
    fed[0:3], fed[6:8] = packed[[0, 3, 5]], packed[[6, 8]]
    looks.fed_verify(one, fed, 6)
    looks.carried(one, left(states(2 * 3, 1)))
    branches = states(2 * 3, 1)
    looks.carried(one, left(branches))
    looks.extended(one, SimpleNamespace(next_draft_input=left(fed[::6, :H])))
    looks.tell(one, "verify", c.EAGER, [2, 1], [1, 1])
    (record,) = recorder.queue
    for uid, nodes in (("a", [0, 3, 5]), ("b", [6, 8])):
        assert close(of(record, hidden.AUX_CAPTURE, uid), packed[nodes])
        assert np.array_equal(
            of(record, hidden.AUX_CAPTURE, uid)[:, :, :5], of(record, hidden.FED, uid)[:, :, :5]
        )
    assert close(of(record, hidden.CARRY, "b", 2), branches[3:4], 1)  # its best branch


def check_a_request_that_was_over_has_no_rows() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    fed = states(8)
    looks.carried(one, left(states(2, 1)))
    looks.packed(one, fed)
    looks.fed_verify(one, fed, 4)
    looks.extended(one, SimpleNamespace(next_draft_input=left(fed[::4, :H])))
    looks.tell(one, "verify", c.EAGER, [3, 1], [7, 8], [True, False])
    (record,) = recorder.queue
    assert len(record.looks) == 4
    assert all(look.counts[0] == 0 < look.counts[1] for look in record.looks)
    assert close(of(record, hidden.FED, "b"), fed[4:6])


def check_rows_behind_those_of_the_requests_are_padding() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    padded = states(4, 1)
    looks.embedded(one, padded, target_fed=False)
    looks.extended(one, left(states(4, 1)))  # not one state a request, but what MULTI_LAYER_EAGLE was fed
    looks.tell(one, "verify", c.EAGER, [0, 0], [1, 1])
    (record,) = recorder.queue
    assert [one.place for one in record.looks] == [hidden.EMBEDDING]
    assert close(of(record, hidden.EMBEDDING, "b", 1), padded[1:2], 1)


def check_looks_that_are_late_are_told_without_another_look() -> None:
    looks, recorder = a_scheduler()
    arrived = [False]

    class Late(Copy):
        def arrived(self) -> bool:
            return arrived[0]

    one = a_pass(PREFILL, "a")
    looks.open(one)
    looks.fed_prefill(one, states(4), batch([4]))
    looks.extended(one, None)
    assert one.looking and one.looking.copy
    one.looking.copy = Late(one.looking.copy.ready())
    looks.tell(one, "prefill", c.EAGER, (), ())
    assert looks.late and not recorder.queue
    arrived[0] = True
    looks.flush()
    assert not looks.late and len(recorder.queue) == 1


def check_of_several_layers_the_first_one_is_looked_at() -> None:
    seen: list[Any] = []
    path: Any = SimpleNamespace(fc_begins=seen.append, fc_ran=seen.append)
    layers = [torch.nn.Linear(H, H) for _ in range(2)]
    loaded: Any = SimpleNamespace(fc=layers[0], fcs=layers, server_args=None)
    install_fc(loaded, path, cast("Any", SimpleNamespace(add_engine_time=str)))
    x = states(2, 1)
    made = [layer(x) for layer in layers]
    assert [id(one) for one in seen] == [id(x), id(made[0]), id(None)]


def check_what_is_fed_is_told_apart_from_what_was_captured() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(PREFILL, "a")
    looks.open(one)
    captured, fed = states(4), states(4)
    looks.packed(one, captured)
    looks.fed_prefill(one, fed, batch([4]))
    looks.entered_fc(one, fed.clone())
    looks.extended(one, None)
    looks.tell(one, "prefill", c.EAGER, (), ())
    (record,) = recorder.queue
    assert close(of(record, hidden.AUX_CAPTURE, "a"), captured)
    assert close(of(record, hidden.FED, "a"), fed)
    assert not any(one.same_as for one in record.looks)
    assert not any(one.place == hidden.CARRY for one in record.looks)  # there was none


def check_what_comes_after_the_draft_extend_is_left_out() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    looks.fed_verify(one, states(8), 4)
    looks.extended(one, None)
    looks.embedded(one, states(2, 1), target_fed=False)  # pipeline stages draft the next proposal here
    looks.tell(one, "verify", c.EAGER, [0, 0], [1, 1])
    (record,) = recorder.queue
    assert [one.place for one in record.looks] == [hidden.FED]


def check_one_state_where_three_are_wanted() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(PREFILL, "a")
    looks.open(one)
    narrow, odd = states(4, 1), torch.randn(4, H + 1)
    looks.carried(one, left(states(1, 1)))  # drafted beside a prefill, for no request
    looks.fed_prefill(one, narrow, batch([4]))
    looks.entered_fc(one, odd)
    looks.extended(one, None)
    looks.tell(one, "prefill", c.EAGER, (), ())
    (record,) = recorder.queue
    assert [(one.place, one.slots) for one in record.looks] == [(hidden.FED, 1), (hidden.FC_IN, 1)]


def check_levels_of_detail() -> None:
    for detail, projections in (("steps", False), ("tokens", False), ("full", True)):
        looks, recorder = a_scheduler(detail)
        one = a_pass(PREFILL, "a")
        looks.open(one)
        looks.fed_prefill(one, states(4), batch([4]))
        looks.extended(one, None)
        looks.tell(one, "prefill", c.EAGER, (), ())
        assert the(recorder.queue[0], hidden.FED).projections is projections
    looks, recorder = a_scheduler("summary")
    one = a_pass(PREFILL, "a")
    looks.open(one)
    assert one.looking is None


def check_a_long_prefill_is_combined() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(PREFILL, "ab")
    looks.open(one)
    fed = states(3000)
    looks.fed_prefill(one, fed, batch([1000, 2000]))
    looks.extended(one, None)
    looks.tell(one, "prefill", c.EAGER, (), ())
    look = the(recorder.queue[0], hidden.FED)
    assert look.summed and not look.projections
    found = np.frombuffer(look.data, dtype="<f4").reshape(2, SLOTS, len(tensorstats.SUMMED))
    for at, rows in enumerate((fed[:1000], fed[1000:])):
        x = rows.double().numpy().reshape(-1, SLOTS, H)
        assert (found[at, :, 0] == len(rows)).all()
        assert np.allclose(found[at, :, 1], x.mean((0, 2)), rtol=1e-4)
        assert np.allclose(found[at, :, 2], x.var((0, 2)), rtol=1e-4)


def check_looks_are_left_out_while_the_exporter_lags_and_that_is_counted() -> None:
    looks, recorder = a_scheduler()
    limit, module_any = module.HELD_BYTES, cast("Any", module)
    module_any.HELD_BYTES = 3000
    try:
        opened: list[bool] = []
        for _ in range(8):
            one = a_pass(PREFILL, "a")
            looks.open(one)
            opened.append(one.looking is not None)
            looks.fed_prefill(one, states(10), batch([10]))
            looks.extended(one, None)
            looks.tell(one, "prefill", c.EAGER, (), ())
        assert opened == [True, True] + [False] * 6  # 10 rows, 3 slots, 14 columns: 1680 bytes each
        assert recorder.missed == {module.BUSY: 6}
        recorder.queue.clear()
        one = a_pass(PREFILL, "a")
        looks.open(one)
        assert one.looking is not None
    finally:
        module_any.HELD_BYTES = limit


def check_what_is_no_state_of_each_request_starts_no_proposal() -> None:
    """Other rows than requests, states of a prefill's own proposal, none at all."""
    looks, recorder = a_scheduler()
    for kind, given in (
        (VERIFY, states(3, 1)),
        (VERIFY, torch.zeros(2)),
        (VERIFY, None),
        (PREFILL, states(2)),
    ):
        one = a_pass(kind, "ab")
        looks.open(one)
        looks.started(one, given)
        assert one.looking is not None and not one.looking.looks
    assert not recorder.missed


def check_ranks_compare_one_row_of_each_step() -> None:
    told: list[Any] = []
    made: list[Any] = []
    blocks = [states(4) for _ in range(3)]
    for emits, spoilt in ((True, False), (False, False), (False, True)):
        looks, recorder = a_scheduler("steps", emits=emits, ranks=object())
        one = a_pass(VERIFY, "abc", step=7)
        looks.open(one)
        fed = torch.cat(blocks)
        if spoilt:
            fed[4, :H] *= 2  # the first row of the second request: 7 % 3
        looks.fed_verify(one, fed, 4)
        looks.left_fc(one, fed[:, -H:] * (2 if spoilt else 1))
        looks.extended(one, None)
        hidden_states, fc_out = looks.compared(one)
        told.append(hidden_states)
        made.append(fc_out)
        looks.tell(one, "verify", c.EAGER, [0, 0, 0], [1, 1, 1])
        assert len(recorder.queue) == emits
    assert len(told[0]) == SLOTS * (1 + hidden.PROJECTIONS)
    assert told[0] == told[1] != told[2]
    assert told[0][9:] == told[2][9:] and told[2][0] - told[0][0] == hidden.PER_OCTAVE
    assert made[0] == made[1] == told[0][-9:]
    assert made[2][1:] == made[0][1:] and made[2][0] - made[0][0] == hidden.PER_OCTAVE


def check_of_an_fc_that_ranks_split_nothing_is_compared() -> None:
    looks, _ = a_scheduler("steps", ranks=object(), fc=SimpleNamespace())
    one = a_pass(VERIFY, "abc", step=7)
    looks.open(one)
    fed = torch.cat([states(4) for _ in range(3)])
    looks.fed_verify(one, fed, 4)
    looks.left_fc(one, fed[:, :H])
    looks.extended(one, None)
    assert [len(told) for told in looks.compared(one)] == [SLOTS * (1 + hidden.PROJECTIONS)]


def check_a_step_without_rows_or_without_draft_extend_is_told_as_that() -> None:
    looks, recorder = a_scheduler()
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    looks.tell(one, "verify", c.EAGER, [0, 0], [1, 1])
    assert not recorder.queue
    one = a_pass(VERIFY, "ab")
    looks.open(one)
    carried = states(2, 1)
    looks.carried(one, left(carried))
    looks.tell(one, "verify", c.EAGER, [0, 0], [1, 1])
    (record,) = recorder.queue
    assert close(of(record, hidden.CARRY, "b", 1), carried[1:], 1)
    looks.carried(one, states(3, 1))  # its looks are told: nothing more is taken
    assert len(recorder.queue) == 1


if __name__ == "__main__":
    torch.manual_seed(11)
    report([check for name, check in list(globals().items()) if name.startswith("check_")])
