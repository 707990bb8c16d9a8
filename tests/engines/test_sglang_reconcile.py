"""Three books of one mixed load: the server's, SGLang's own (answers, counters, log), and the single steps.

They must agree to the last token, or differ by exactly what a named quirk says (``diagnosis/quirks.py``).
"""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from live_answers import detail, plant, requests, settled, specscope, traced
from sglang_engine import CHAIN, TREE, Server, speculation
from sglang_load import KINDS, SEVERAL, Load, counters, decode_lines, page, run
from specscope_server.store.model import RequestRow

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

OBSERVED = ("--enable-metrics", "--decode-log-interval", "1")
FORWARDS = {"SGLANG_LOG_FORWARD_ITERS": "1"}
RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "25"}
"""SGLang then sends running requests back to the queue every 25 passes, as a full cache makes it do."""


@dataclass(frozen=True)
class Books:
    """What each book says once everything has ended. ``steps`` are the step rows of each request, by uid."""

    nodes: int
    load: Load
    rows: dict[str, RequestRow]
    steps: dict[str, list[Mapping[str, Any]]]
    engine: dict[str, Any]
    counters: dict[str, float]
    log: str

    def of(self, *kinds: str) -> list[RequestRow]:
        """The requests of these kinds, of all when none is named."""
        return [row for row in self.rows.values() if not kinds or row.kind in kinds]


def kept(folder: Path, count: int, shape: tuple[str, ...], environment: dict[str, str]) -> Books:
    """Run the load on an engine of ``shape`` and return the books."""
    with (
        specscope(folder) as live,
        Server(folder, [*speculation(shape), *OBSERVED], traced(live) | FORWARDS | environment) as server,
    ):
        load = run(server, count)
        shown = settled(live, warmup=1, user=load.users)
        found = requests(live)
        return Books(
            nodes=int(shape[-1]) - 1,
            load=load,
            rows={row.rid: row for row in found},
            steps={row.uid: list(detail(live, row.uid).steps) for row in found},
            engine=shown,
            counters=counters(page(server, "/metrics")),
            log=server.log,
        )


@pytest.fixture(
    scope="module", params=[60, pytest.param(520, marks=pytest.mark.slow)], ids=["chain-60", "tree-520"]
)
def books(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Books:
    """A chain with 60 requests; a tree with 520, of which SGLang retracts some."""
    folder = tmp_path_factory.mktemp("books")
    if request.param == 60:
        return kept(folder, 60, CHAIN, {})
    return kept(folder, 520, TREE, RETRACTING)


def test_the_load_is_mixed(books: Books) -> None:
    kinds = Counter(books.load.kinds.values())
    assert set(kinds) == set(KINDS)
    assert len(books.load.answers) >= 60
    reasons = {meta["finish_reason"]["type"] for meta in books.load.meta.values()}
    assert reasons == {"length", "stop", "abort"}
    rows = books.of("user")
    assert max(row.totals.prefill_passes for row in rows) > 1, "no chunked prefill"
    assert any(row.cached_tokens for row in rows), "no hit of the prefix cache"
    batch = max(step["batch_size"] for steps in books.steps.values() for step in steps)
    assert batch > 4, "too few requests at a time to tell rows apart"
    retracted = sum(meta["num_retractions"] for meta in books.load.meta.values())
    assert (retracted > 0) == (books.nodes > 4)


def test_each_request_is_what_its_answer_says(books: Books) -> None:
    for rid, meta in books.load.meta.items():
        row = books.rows[rid]
        totals, steps = row.totals, [step for step in books.steps[row.uid] if not step["overshoot"]]
        assert row.prompt_tokens == meta["prompt_tokens"]
        assert row.output_tokens == meta["completion_tokens"]
        assert row.cached_tokens == meta["cached_tokens"]
        assert row.finish_reason == meta["finish_reason"]["type"]
        # Quirk "keys absent": without a verify step there is none of them.
        assert ("spec_verify_ct" in meta) == (totals.verify_steps > 0)
        assert totals.verify_steps == meta.get("spec_verify_ct", 0) == len(steps)
        accepted = [step["accepted"] for step in steps]
        assert totals.accepted == meta.get("spec_num_correct_drafts", 0) == sum(accepted)
        histogram = meta.get("spec_correct_drafts_histogram", [])
        assert [Counter(accepted)[n] for n in range(len(histogram))] == histogram
        # Quirk "tree in the denominator".
        assert (
            totals.drafted_nodes
            == books.nodes * totals.verify_steps
            == meta.get("spec_num_proposed_drafts", 0)
        )
        assert totals.committed == sum(step["committed"] for step in steps)


def test_tokens_of_prefills_are_in_no_verify_step(books: Books) -> None:
    """Quirks "re-prefill", "prefill token" and "cut by a stop", each as large as they say."""
    cut = 0
    for rid, meta in books.load.meta.items():
        totals = books.rows[rid].totals
        if meta["finish_reason"]["type"] == "abort" and meta["num_retractions"]:
            continue  # it may have been aborted before it was prefilled again
        assert meta["completion_tokens"] == totals.committed + 1 + meta["num_retractions"]
        cut += totals.accepted + totals.bonus - totals.committed
        if totals.verify_steps:
            told = (totals.committed + 1 + meta["num_retractions"]) / totals.verify_steps
            assert meta["spec_accept_length"] == told
            assert meta["spec_accept_rate"] == totals.accepted / totals.drafted_nodes
    assert cut > 0, "no request was cut by its end: this load does not tell accepted from committed"


def test_the_server_compared_every_request_and_found_no_difference(books: Books) -> None:
    told = books.engine["reconciliation"]
    assert told == {"compared": len(books.rows), "differing": 0, "not_compared": {}}
    assert "totals_differ" not in books.engine["unknown"]
    assert books.engine["findings"] == []
    for row in books.rows.values():
        assert row.engine_counts is not None
        assert (row.engine_counts.verify_steps, row.engine_counts.accepted) == (
            row.totals.verify_steps,
            row.totals.accepted,
        )


def test_rollups_totals_and_steps_are_three_ways_to_one_sum(books: Books) -> None:
    users = books.of("user")
    steps = [step for row in users for step in books.steps[row.uid] if not step["overshoot"]]
    counts = books.engine["counts"]
    for name in ("drafted_depth", "drafted_nodes", "accepted", "bonus", "committed"):
        total = sum(getattr(row.totals, name) for row in users)
        assert counts[name] == total == sum(step[name] for step in steps), name
    zero = [step for step in steps if step["drafted_depth"] and not step["accepted"]]
    assert counts["verify_steps"] == len(steps) == sum(row.totals.verify_steps for row in users)
    assert counts["zero_accept_steps"] == len(zero) == sum(row.totals.zero_accept_steps for row in users)
    for position in books.engine["positions"]:
        reached = [step for step in steps if step["drafted_depth"] >= position["position"]]
        taken = [step for step in reached if step["accepted"] >= position["position"]]
        assert (position["drafted"], position["accepted"]) == (len(reached), len(taken))


def test_prometheus_counters_are_ours_but_for_health_checks(books: Books) -> None:
    """Quirks "who is counted", "prefix requests" and "busy health check"."""
    counted = books.of("user", "warmup")
    told = books.counters
    assert told["sglang:spec_verify_calls_total"] == sum(row.totals.verify_steps for row in counted)
    assert told["sglang:generation_tokens_total"] == sum(row.output_tokens or 0 for row in counted)
    assert told["sglang:prompt_tokens_total"] == sum(row.prompt_tokens or 0 for row in counted)
    assert told["sglang:cached_tokens_total"] == sum(row.cached_tokens or 0 for row in counted)
    assert told["sglang:num_requests_total"] == len(counted)
    aborted = [row for row in counted if row.state == "aborted"]
    assert told["sglang:num_aborted_requests_total"] == len(aborted)
    prefixes = [row for row in books.of("user") if row.rid not in books.load.answers]
    assert {(row.output_tokens, row.totals.verify_steps) for row in prefixes} == {(0, 0)}
    assert len(prefixes) == books.load.prefixes == Counter(books.load.kinds.values())[SEVERAL] / 2
    assert 0 < len(books.of("health_check")) <= books.load.checks


def test_each_line_of_the_log_is_the_mean_of_its_steps(books: Books) -> None:
    """Quirk "rows of the log"."""
    by_step: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for steps in books.steps.values():
        for step in steps:
            by_step[step["step"]].append(step)
    lines = decode_lines(books.log)
    assert [line.step for line in lines] == sorted(by_step)
    for line in lines:
        rows = by_step[line.step]
        assert len(rows) == line.running
        length = sum(row["accepted"] + row["bonus"] for row in rows) / len(rows)
        rate = sum(row["accepted"] for row in rows) / (books.nodes * len(rows))
        assert (f"{line.accept_length:.2f}", f"{line.accept_rate:.2f}") == (f"{length:.2f}", f"{rate:.2f}")


def test_gauges_show_the_last_window_alone(books: Books) -> None:
    """Quirk "last window"."""
    last = decode_lines(books.log)[-1]
    length = books.counters["sglang:spec_accept_length"]
    assert f"{length:.2f}" == f"{last.accept_length:.2f}"
    assert length != pytest.approx(books.engine["acceptance_length"], abs=0.005)


LYING = '''
"""An SGLang plugin of the tests: its counter of accepted drafts is one too high after every tenth step."""

from itertools import count

STEPS = count(1)


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.managers.schedule_batch.Req.update_spec_correct_drafts_histogram", lie, HookType.AFTER
    )


def lie(result, req, *args, **kwargs):
    if next(STEPS) % 10 == 0:
        req.spec_num_correct_drafts += 1
    return result
'''


def test_a_counter_that_lies_is_found_with_both_numbers(tmp_path: Path) -> None:
    where = str(plant(tmp_path, "lying", LYING))
    with (
        specscope(tmp_path) as live,
        Server(tmp_path, speculation(CHAIN), traced(live, PYTHONPATH=where)) as server,
    ):
        load = run(server, 20)
        shown = settled(live, warmup=1, user=load.users)
        (found,) = [one for one in shown["findings"] if one["kind"] == "totals_differ"]
        assert (found["fault_class"], found["confidence"], shown["state"]) == ("F24", "certain", "faulty")
        differing = [
            row
            for row in requests(live)
            if row.engine_counts is not None and row.engine_counts.accepted != row.totals.accepted
        ]
        told = shown["reconciliation"]
        assert told["differing"] == len(differing) > 0
        assert told["compared"] == len(requests(live)) > len(differing)
        # What SGLang tells its users is the lie; what the steps add up to is not.
        rows = {row.rid: row for row in requests(live)}
        lies = 0
        for rid, meta in load.meta.items():
            counts, totals = rows[rid].engine_counts, rows[rid].totals
            assert counts is not None and counts.accepted == meta.get("spec_num_correct_drafts", 0)
            histogram = meta.get("spec_correct_drafts_histogram", [])
            assert totals.accepted == sum(n * times for n, times in enumerate(histogram))
            lies += counts.accepted - totals.accepted
        assert lies > 0
        examples = [one for one in found["numbers"] if "accepted drafts of" in one["name"]]
        assert 1 <= len(examples) <= 3
        for one in examples:
            assert one["value"] > one["expected"]
            page_of = live.client.get(one["link"])
            assert page_of.status_code == 200
            assert "not what its steps add up to" in page_of.text
        assert found["title"] in html.unescape(live.client.get(f"/engines/{shown['engine_uid']}").text)
