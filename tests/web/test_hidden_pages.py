"""What the pages say of hidden states: of a request, of an engine, and where nothing was looked at."""

from __future__ import annotations

import html
import re
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import hidden_story as story
import numpy as np
import pytest
from serverkit.live import Live, serving
from specscope import convention as c
from specscope import hidden
from specscope.rollup import Counts
from specscope_server.diagnosis import hidden_drift, hidden_evidence
from specscope_server.diagnosis.model import RankEvidence, RankHidden
from specscope_server.store.model import BoundaryState
from specscope_server.web import hidden_engine, hidden_places, hidden_request, windows
from specscope_server.web.hidden_table import MAX_LINES
from specscope_server.web.thinning import position_line
from storekit import facts

ENGINE = f"/engines/{facts.ENGINE}"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Generator[Live]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('hidden') / 'store.db'}") as found:
        story.full_request(found.store)
        story.full_request(found.store, "u-swapped", (2, 1, 0))
        story.steps_request(found.store)
        story.hostile_request(found.store)
        story.refer(found.store)
        for uid, detail in (("u-none", "steps"), ("u-summary", "summary")):
            told = facts.batch(facts.request(uid), detail=detail, process_uid=detail)
            found.store.write([told], facts.NOW)
        story.engine(found.store, datetime.now(UTC))
        yield found


def section(live: Live, path: str, **asked: str) -> str:
    """Return the text of the panel, its tags taken out and its spaces made one."""
    answer = live.client.get(path, params=asked)
    assert answer.status_code == 200
    panel = answer.text.partition('id="hidden-h"')[2].partition("</section>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", panel)).split())


def said_of(text: str, place: str, following: str) -> str:
    """Return what the table says of a place, up to the next one."""
    return (
        text.partition(f"{place} {hidden_places.DOES[place]}")[2]
        .partition(f"{following} {hidden_places.DOES[following]}")[0]
        .strip()
    )


def test_a_place_that_is_the_tensor_of_another_says_so_in_words(live: Live) -> None:
    text = section(live, "/requests/u-steps")
    for place, following in ((hidden.AUX_CAPTURE, hidden.FED), (hidden.FC_IN, hidden.FC_OUT)):
        assert said_of(text, place, following) == (
            "target-fed: the very tensor of draft.extend (12 looks), so its numbers stand there"
        )


def test_every_slot_and_draft_step_has_its_line(live: Live) -> None:
    text = section(live, "/requests/u-steps")
    assert "64 looks at the steps shown" in text
    fed = said_of(text, hidden.FED, hidden.FC_IN)
    assert re.findall(r"slot (\d) (\w+) (\d+) (\d+) ", fed) == [
        (str(slot), after, rows, looks)
        for slot in range(3)
        for after, rows, looks in (("prefill", "20", "1"), ("verify", "9", "3"))
    ]
    assert "draft step 2 verify 3 3" in text


def test_the_carry_grows_by_its_ratio(live: Live) -> None:
    text = section(live, "/requests/u-full")
    (ratio,) = re.findall(r"0 → 1 ×(\S+) ×\S+ ×\S+ 11", text)
    assert float(ratio) == pytest.approx(1.3, rel=0.1)
    assert "2 → 3" not in text


def test_what_the_panel_told_before_is_still_told(live: Live) -> None:
    live.store.write(
        [
            facts.batch(
                facts.request("u-fed"),
                facts.chunk("u-fed", extends=[facts.extend(1, fed_width=32, fc_ran=0)]),
            )
        ],
        facts.NOW,
    )
    text = section(live, "/requests/u-fed")
    assert "The draft's fc takes 96 values per token and was fed 32, so it was skipped." in text


def test_a_reference_tells_slots_that_changed_places(live: Live) -> None:
    text = section(live, "/requests/u-swapped")
    assert "slot 0 equals the reference's slot 2, not its slot 0" in text
    assert "slot 2 equals the reference's slot 0, not its slot 2" in text
    assert "equals the reference's slot 1" in text
    healthy = section(live, "/requests/u-full")
    assert "over the 60 tokens that this request shares with it" in healthy
    assert "not its" not in healthy


def test_without_fingerprints_nothing_is_compared_and_the_page_says_why(live: Live) -> None:
    text = section(live, "/requests/u-steps")
    assert "Not compared: no fingerprints of hidden states were recorded" in text
    assert "one point a look at its first token" in text


@pytest.mark.parametrize(
    ("uid", "says"),
    [
        ("u-none", "No look at hidden states was told of the steps shown"),
        ("u-summary", "not looked at at detail level summary; start the engine with SPECSCOPE_DETAIL=steps"),
    ],
)
def test_nothing_looked_at_is_a_reason_and_no_number(live: Live, uid: str, says: str) -> None:
    text = section(live, f"/requests/{uid}")
    assert says in text
    assert "rms" not in text


def test_hostile_looks_stay_text_and_in_bounds(live: Live) -> None:
    page = live.client.get("/requests/u-hostile").text
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "nan" not in page
    text = section(live, "/requests/u-hostile")
    assert f"{602 - MAX_LINES} more lines are left out" in text
    assert "all zero or not finite" in page


def test_an_engine_that_moved_says_by_how_much(live: Live) -> None:
    text = section(live, ENGINE)
    fed = said_of(text, hidden.FED, hidden.FC_IN)
    ratios = re.findall(r"slot (\d) verify \S+ \S+ \S+ \S+ ×(\S+) ± \S+ (\w+)", fed)
    assert [(slot, verdict) for slot, _, verdict in ratios] == [("0", "same"), ("1", "moved"), ("2", "same")]
    assert float(ratios[1][1]) == pytest.approx(0.1, rel=0.1)
    assert "2 moved, 8 as before" in text
    assert re.search(r"draft\.extend slot 1 after verify: -3\.\d+ ± 0\.\d+ octaves; moved: size", text)
    assert re.search(r"draft\.fc\.out target-fed after verify: \S+ ± \S+ octaves; moved: zero rows", text)
    assert "no numbers of its own; while it is the very tensor of draft.extend" in text


def test_the_earlier_period_is_chosen_by_the_url(live: Live) -> None:
    assert "against as long a period from the engine's start" in section(live, ENGINE, baseline="start")
    text = section(live, ENGINE, baseline="day")
    assert "No look came in the earlier period" in text
    assert text.count("not enough looks") == 10
    assert "10 not known" in text
    assert "right before it" in section(live, ENGINE, baseline="nonsense")


@pytest.mark.parametrize(("accepted", "tone"), [(20, "ok"), (0, "off")])
def test_like_a_time_that_was_not_healthy_is_not_well(accepted: int, tone: str) -> None:
    seen = hidden_evidence.of({facts.PLACE: facts.looks(20)})
    counts = Counts(steps=10, drafted_depth=30, accepted=accepted, bonus=10)
    compared = hidden_drift.compare(seen, seen, counts)
    assert [one.verdict for one in compared.drifts] == ["same"]
    assert hidden_engine.tone_of(compared) == tone


def test_a_window_has_no_baseline_that_overlaps_it() -> None:
    week, hour = windows.choose("7d"), windows.choose("1h")
    assert [one.key for one in hidden_engine.offered(week)] == ["before", "start"]
    assert [one.key for one in hidden_engine.offered(hour)] == ["before", "day", "week", "start"]


@pytest.mark.parametrize(
    ("ratio", "error", "words"),
    [
        (None, None, "not enough looks"),
        (-3.3219, 0.1, "×0.100 ± 0.007"),
        (0.0, 0.0, "×1.00 ± 0"),
        (10.0, 0.01, "×1.02e+03 ± 7"),
        (7.0, 0.01, "×128 ± 0.9"),
    ],
)
def test_ratios_in_words(ratio: float | None, error: float | None, words: str) -> None:
    assert hidden_engine.in_words(ratio, error) == words


def test_ranks_that_differ_by_more_than_rounding_are_said() -> None:
    group = RankEvidence(0, 0, 2, (0, 1), 9, 9, 0, 0)
    told = (RankHidden(0, 9, 0.001, 4, 1), RankHidden(1, 9, 1.4, 5, 1))
    ok, bad = hidden_engine.rank_sentences([replace(group, hidden=told)])
    assert (ok.tone, bad.tone) == ("ok", "bad")
    assert ok.text.startswith("Ranks, slot 0: 9 steps compared, relative error at most 0.001 (rank 1,")
    assert bad.text.endswith("(rank 1, engine step 5), more than rounding makes")
    assert list(hidden_engine.rank_sentences([group])) == []


def _line(source: str, expected: int, armed: bool = True, **observed: int) -> BoundaryState:
    return BoundaryState(
        c.DRAFT_FORWARD, source, expected, observed, armed, "" if armed else "no such symbol"
    )


@pytest.mark.parametrize(
    ("ledger", "detail", "says"),
    [
        ([_line(c.SELF_FED, 4, eager=4)], "summary", "not taken at detail level summary"),
        ([], "full", "not told, and no boundary counts that say why"),
        (
            [_line(c.TARGET_FED, 4, eager=4)],
            "full",
            "not on this path: no crossing of draft.forward was expected",
        ),
        ([_line(c.SELF_FED, 4, armed=False)], "full", "not observable: no such symbol"),
        ([_line(c.SELF_FED, 4)], "full", "draft.forward never ran, so there was nothing to look at"),
        ([_line(c.SELF_FED, 4, graph=4)], "full", "not observable in a replayed graph"),
        (
            [_line(c.SELF_FED, 4, graph=4)],
            "steps",
            "not observable in a replayed graph at detail level steps",
        ),
        (
            [_line(c.SELF_FED, 4, eager=4)],
            "steps",
            "not taken here: each prefill and every n-th engine step is",
        ),
    ],
)
def test_why_a_place_was_not_looked_at(ledger: list[BoundaryState], detail: str, says: str) -> None:
    assert hidden_places.why_not(hidden.CARRY, c.SELF_FED, ledger, detail).startswith(says)


def test_a_long_line_is_thinned_and_keeps_the_token_that_stands_out() -> None:
    positions = np.arange(100_000.0)
    values = np.full(100_000, 5.0)
    values[[0, 70_001]] = 900.0, 0.001
    values[500:600] = np.nan
    line = position_line(
        "slot 0", np.delete(positions, [40_000, 40_001]), np.delete(values, [40_000, 40_001])
    )
    assert 100 < len(line.positions) <= 1200
    told = dict(zip(line.positions, line.values, strict=True))
    assert (told[0], told[70_001]) == (900.0, 0.001)
    assert len(line.broken) == 100
    assert max(line.runs) == 2


def test_rows_without_a_size_are_marked_and_not_left_a_gap() -> None:
    looks = [facts.look(1, position=3, rows=3, levels=[512, hidden.NO_LEVEL, 2**40], fingerprints=None)]
    (line,), by_token = hidden_request.position_lines([*looks, facts.look(2, position=9, levels=None)])
    assert by_token
    assert (line.positions, line.values, line.broken) == ([3, 9], [4.0, 4.0], [4, 5])
    assert line.runs[0] != line.runs[1]


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('huge') / 'store.db'}") as found:
        story.huge_request(found.store)
        story.engine(found.store, datetime.now(UTC), slots=16, drafts=21)
        yield found


def test_sixteen_slots_twenty_draft_steps_and_a_long_prompt_fit_a_page(huge: Live) -> None:
    page = huge.client.get("/requests/u-huge", timeout=120).text
    assert len(page) < 1_500_000
    text = section(huge, "/requests/u-huge")
    assert "slot 15" in text
    assert "draft step 20" in text
    text = section(huge, ENGINE)
    assert "more tensors are in the table by place alone" in text


def test_the_section_links_and_draws_nothing_that_the_policy_blocks(live: Live) -> None:
    for path in (ENGINE, "/requests/u-full", "/requests/u-hostile"):
        page = live.client.get(path).text
        assert not re.search(r"<[^>]+ style=|<style|<script(?![^>]*src=)", page), path


def test_nothing_was_seen_on_an_engine(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as found:
        found.store.write([facts.batch(facts.REPORT, facts.heartbeat(2))], facts.NOW)
        text = section(found, ENGINE)
        assert "No look at hidden states came in the last hour" in text
        assert "×" not in text
