"""Promised and served, and whether speculation pays: panels of an engine's page, from a real server."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from browsing import SCREENSHOTS, Served, serve, watched
from fleet import Engine
from playwright.sync_api import Browser
from specscope import convention as c
from specscope_server.store.model import ExpectationRow, ExpectationScope

AS_SERVED = (0.71, 0.76, 0.8, 0.74)
FAST = {"step|1": (900, 20.0), "decode|1": (300, 14.0)}
PARTS = {"verify|1": (900, 11.0), "draft|1": (900, 9.0)}
ENGINES = [
    Engine("pays", "pays", started_s=700, passes=FAST, accept=AS_SERVED),
    Engine("costs", "costs", started_s=700, passes={**FAST, "decode|1": (300, 5.0)}, accept=AS_SERVED),
    Engine("bound", "bound", started_s=700, passes=PARTS, model="other"),
    Engine("borrows", "borrows", started_s=700, passes={"step|1": (900, 20.0)}),
    Engine("untimed", "untimed", started_s=700),
    Engine("never asked", "idle", started_s=700, requests=False, kind=c.KIND_USER),
    Engine("off", "off", started_s=700, requests=False, speculation=False),
]  # fmt: skip
NOW = datetime.now(UTC)


def promise(
    engine: str, *per_position: float, workload: str = "", floor: float | None = None
) -> ExpectationRow:
    scope = ExpectationScope(engine=engine, workload=workload)
    return ExpectationRow(scope, "declared", per_position, 0, floor, "ada", NOW)


PROMISES = (
    promise("pays", 0.70, 0.75, 0.78, 0.72),
    promise("costs", 0.95, 0.93, 0.9, 0.9, floor=3.6),
    promise("costs", 0.5, 0.5, workload="copy_like=yes"),
    promise("never asked", 0.7, 0.7),
)


@pytest.fixture(scope="module")
def gain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("gain") / "gain.db", ENGINES) as running:
        for one in PROMISES:
            running.store.set_expectation("default", replace(one, said=datetime.now(UTC)))
        yield running


def panel(served: Served, name: str, panel_id: str) -> str:
    """The text of one panel of an engine's page, without its markup."""
    page = httpx.get(served.url + served.engine(name), timeout=60).text
    found = re.search(rf'<section class="panel gain" id="{panel_id}".*?</section>', page, re.S)
    assert found is not None
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).split())


class TestPromised:
    def test_a_kept_promise_shows_both_sides_of_each_position(self, gain: Served) -> None:
        told = panel(gain, "pays", "expected")
        assert "All traffic kept Declared by ada." in told
        assert re.search(r"Acceptance length \d\.\d\d in the last 5 minutes, promised 2\.\d\d", told)
        rows = re.findall(r"\b([1-4]) ([\d,]+) (\d+\.\d %) (\d+\.\d %)", told)
        assert [(row[0], row[3]) for row in rows] == [
            ("1", "70.0 %"), ("2", "75.0 %"), ("3", "78.0 %"), ("4", "72.0 %")
        ]  # fmt: skip

    def test_a_broken_one_says_the_odds_in_plain_words_and_its_floor(self, gain: Served) -> None:
        told = panel(gain, "costs", "expected")
        assert "All traffic broken" in told
        assert "floor 3.60 tokens a step" in told
        assert "If the draft were as good as promised, chance alone would show so little with odds of" in told
        assert re.search(r"of the promised gain less\.", told)
        assert "Traffic of copy_like=yes" in told

    def test_what_is_promised_and_not_served_is_not_measured(self, gain: Served) -> None:
        told = panel(gain, "never asked", "expected")
        assert "not measured" in told
        assert "no verify step of it drafted anything in the last 5 minutes" in told
        assert "Promised is an acceptance length of 2.19." in told

    def test_without_a_promise_it_says_how_to_make_one(self, gain: Served) -> None:
        told = panel(gain, "untimed", "expected")
        assert "Nothing was promised of this draft" in told
        assert "specscope baseline set --engine untimed --per-position" in told
        assert "specscope baseline learn --engine untimed --since 1h" in told


class TestSpeedup:
    def test_each_batch_shows_what_the_formula_is_made_of(self, gain: Served) -> None:
        told = panel(gain, "pays", "speedup")
        assert re.search(r"Does speculation pay\? speeds up [12]\.\d x", told)
        assert (
            "Speed-up = acceptance length × time of a plain decode pass ÷ time of a speculative pass" in told
        )
        row = re.search(r"\b1 (\d\.\d\d) × (\d\.\d\d) (14\.00) (20\.00) [\d,]+", told)
        assert row is not None
        speedup, length, plain, step = (float(one) for one in row.groups())
        assert speedup == pytest.approx(length * plain / step, abs=0.01)
        assert "Not seen: prefill and queueing" in told

    def test_a_loss_is_said_as_that(self, gain: Served) -> None:
        assert re.search(r"pay\? slows down to 0\.\d\d x", panel(gain, "costs", "speedup"))

    def test_a_bound_is_never_read_as_a_measurement(self, gain: Served) -> None:
        told = panel(gain, "bound", "speedup")
        assert re.search(r"pay\? not known Speeds up \d\.\d x at best, plain decode was not timed\.", told)
        assert "At most: no plain decode pass was timed." in told
        assert re.search(r"≤ \d\.\d\d ×", told)

    def test_plain_decode_of_another_engine_is_named(self, gain: Served) -> None:
        assert "another engine" in panel(gain, "borrows", "speedup")

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("never asked", "the engine's passes are not timed"),
            ("off", "the engine is set to serve without a draft"),
        ],
    )
    def test_not_measured_says_why(self, gain: Served, name: str, why: str) -> None:
        assert f"not measured Not measured: {why}." in panel(gain, name, "speedup")


def test_the_shape_of_the_curve_is_said_where_enough_steps_tell_it(gain: Served) -> None:
    page = httpx.get(gain.url + gain.engine("pays"), timeout=60).text
    assert re.search(r'id="shape">Of the drafts whose predecessor was accepted: [a-z]+[^<]*\(\d+%', page)
    assert 'id="shape"' not in httpx.get(gain.url + gain.engine("never asked"), timeout=60).text


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_panels_fit(chromium: Browser, gain: Served, scheme: str, width: int) -> None:
    with watched(chromium, gain, scheme=scheme, width=width) as browse:
        for name in ("pays", "costs", "bound", "never asked"):
            page = browse.open(gain.engine(name))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
            where = SCREENSHOTS / f"gain-{name.replace(' ', '-')}-{scheme}-{width}.png"
            page.locator(".pair.even").screenshot(path=where)
            page.close()
        browse.assert_quiet()
