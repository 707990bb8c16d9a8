"""Numbers and times as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from specscope.rollup import Counts
from specscope_server.diagnosis.state import WORDS
from specscope_server.web import engine_states, stats, windows
from specscope_server.web import format as f
from specscope_server.web.render import link
from specscope_server.web.stats import Acceptance

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_what_is_absent_is_a_dash_never_a_zero() -> None:
    for write in (f.count, f.decimal, f.share, f.significant, f.seconds):
        assert write(None) == "–"
    assert f.utc(None) == f.clock(None) == f.ago(None, NOW) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0 %"), (0.00003, "< 0.1 %"), (0.0474, "4.7 %"), (1.0, "100.0 %")],
)
def test_shares(value: float, text: str) -> None:
    assert f.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0000042, "4 µs"), (0.042, "42 ms"), (1.5, "1.50 s"), (30, "30 s"), (300, "5 min"),
        (5400, "1.5 h"), (200_000, "2.3 d"), (-0.5, "−500 ms"),
    ],
)  # fmt: skip
def test_durations_carry_their_unit(value: float, text: str) -> None:
    assert f.seconds(value) == text


@pytest.mark.parametrize(
    ("before", "text"),
    [(0, "just now"), (-1.5, "just now"), (12, "12 s ago"), (120, "2 min ago"), (7200, "2 h ago"),
     (200_000, "2 d ago"), (-600, "in 10 min")],
)  # fmt: skip
def test_relative_times(before: float, text: str) -> None:
    assert f.ago(NOW - timedelta(seconds=before), NOW) == text


def test_times_are_shown_in_utc() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    assert f.utc(east) == "2026-01-02 03:04:05 UTC"
    assert f.iso(east) == "2026-01-02T03:04:05+00:00"


def test_each_number_shows_its_formula_and_its_counts() -> None:
    counts = Acceptance.of_counts(Counts(10, 40, 40, 19, 10, 29, 2, 0))
    assert stats.length_stat(counts, "") == stats.Stat(
        "Acceptance length", "2.90", "tokens / verify step", stats.LENGTH_FORMULA, "(19 + 10) ÷ 10"
    )
    assert stats.rate_stat(counts, "").working == "19 ÷ 40"
    assert stats.zero_stat(counts, "").value == "20.0 %"
    assert stats.depth_stat(counts, "").value == "4.00"
    assert stats.yield_stat(counts) is None


def test_trees_show_their_node_yield() -> None:
    shown = stats.yield_stat(Acceptance.of_counts(Counts(10, 40, 160, 19, 10, 29, 2, 0)))
    assert shown is not None
    assert (shown.value, shown.working) == ("11.9 %", "19 ÷ 160")


def test_undefined_numbers_say_why() -> None:
    nothing_ran = Acceptance.of_counts(Counts())
    assert stats.length_stat(nothing_ran, "x").why == "undefined: no verify step ran"
    assert stats.rate_stat(nothing_ran, "x").why == "undefined: nothing was drafted"
    undrafted = Acceptance.of_counts(Counts(5, 0, 0, 0, 5, 5, 0, 5))
    assert stats.length_stat(undrafted, "x").value == "1.00"
    assert not stats.zero_stat(undrafted, "x").defined
    assert stats.length_stat(None, "no data in the last hour").why == "no data in the last hour"


def test_windows_start_on_a_bucket_and_fit_the_rollups() -> None:
    for window in windows.WINDOWS:
        assert window.bucket_s % 10 == 0
        buckets = window.buckets(NOW)
        assert 90 <= len(buckets) <= 125
        assert int(buckets[0].timestamp()) % window.bucket_s == 0
        assert buckets[0] == window.since(NOW)
        assert buckets[-1] <= NOW
    assert windows.choose("nonsense") is windows.DEFAULT


def test_every_state_of_the_diagnosis_has_a_tone_and_the_worst_come_first() -> None:
    assert set(engine_states.TONES) == set(WORDS)
    assert engine_states.urgency("faulty") < engine_states.urgency("idle") < engine_states.urgency("healthy")
    assert engine_states.tone("a word from a newer version") == "lost"


def test_links_quote_what_an_engine_chose() -> None:
    assert link("default", "/requests", q="a&b=#c", cursor=None, engine="") == "/requests?q=a%26b%3D%23c"
    assert link("default", "/engines/a b?c") == "/engines/a%20b%3Fc"
    assert link("other", "/") == "/?workspace=other"
