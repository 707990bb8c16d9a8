"""The section on weights: what is lost, differs and changed, from what an engine told to page and API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import SCREENSHOTS, Served, serve, watched
from fleet import Engine
from playwright.sync_api import Browser, expect
from specscope import convention as c
from wirekit.weights import HEALTHY, LOST, told

UPDATE = {
    "how": "from disk", "success": True, "model_path": "checkpoints/step-200", "seconds": 1.25,
    "changed": ["draft 0: model.fc.weight", "target: lm_head.weight"], "changed_count": 2,
    "draft_loads": [
        {"draft": 0, "names": 3, "into": ["model.fc.weight"], "unused": ["lost.weight"], "unused_count": 1}
    ],
}  # fmt: skip
FAILED = {"how": "from disk", "success": False, "message": "<b>no such</b> folder", "seconds": 0.01}
HOSTILE: dict[str, Any] = {
    "weights": {
        "version": True,
        "event": "no mapping",
        "drafts": [
            7,
            {"model": "<script>alert(1)</script>", "names": [], "tensors": [{"name": {}, "from": 3}]},
        ],
        "target": None,
    },
    "differences": [1, {"field": "<i>x</i>", "checkpoint": {"a": [1]}}],
}


def engines() -> list[Engine]:
    updates = (
        (240, c.EVENT_WEIGHT_UPDATE, told(HEALTHY, 1, UPDATE)),
        (180, c.EVENT_MEMORY_RELEASE, told(HEALTHY, 1, {"tags": ["weights"], "success": True})),
        (170, c.EVENT_MEMORY_RESUME, told(HEALTHY, 2, {"changed": [], "changed_count": 0})),
        (60, c.EVENT_WEIGHT_UPDATE, told(HEALTHY, 3, FAILED)),
    )  # fmt: skip
    return [
        Engine("trained-on", "i-updates", started_s=600, config=told(HEALTHY), events=updates),
        Engine("lost-weights", "i-lost", started_s=500, accept=(0.02, 0.0), config=told(LOST, mapped=False)),
        Engine("odd", "i-odd", started_s=300, config=HOSTILE),
        Engine("untold", "i-untold", started_s=300),
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("weights") / "weights.db", engines()) as running:
        yield running


def section(trained: Served, name: str) -> str:
    """The section's text, tags dropped."""
    answer = httpx.get(trained.url + trained.engine(name), timeout=60)
    assert answer.status_code == 200
    found = re.search(r'<section class="panel" id="weights".*?</section>', answer.text, re.S)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


def test_each_event_is_kept_and_listed_newest_first(trained: Served) -> None:
    detail = httpx.get(f"{trained.url}/api/v1{trained.engine('trained-on')}", timeout=60).json()
    assert [(one["event"], one["weight_version"]) for one in detail["events"]] == [
        ("weight_update", 3), ("memory_resume", 2), ("memory_release", 1), ("weight_update", 1), ("start", 0),
    ]  # fmt: skip
    assert detail["events"][3]["detail"] == UPDATE
    assert detail["config"]["weights"]["version"] == 3, "the configuration is the newest one"
    text = section(trained, "trained-on")
    assert "nothing missing, nothing unused" in text
    order = [
        "failed: &lt;b&gt;no such&lt;/b&gt; folder",
        "memory taken back",
        "memory released",
        "step-200",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "2 of the tensors read changed: draft 0: model.fc.weight, target: lm_head.weight" in text
    assert "offered to the draft and not used: lost.weight" in text
    assert "Token map: 320 ids from 1 to 510." in text


def test_what_was_lost_is_said(trained: Served) -> None:
    text = section(trained, "lost-weights")
    assert "5 to check" in text
    assert (
        "2 of the checkpoint's 5 names loaded; used otherwise: d2t; 1 unused; skipped on purpose: t2d."
        in text.replace("&#39;", "'")
    )
    assert "missing model.layers.0.self_attn.o_proj.weight No name of the checkpoint reached it" in text
    assert "unused midlayer.self_attn.out_proj.weight" in text
    assert "draft_vocabulary 320 320 512" in text


def test_nothing_told_and_nonsense_told(trained: Served) -> None:
    assert "The tracer told nothing of weights." in section(trained, "untold")
    text = section(trained, "odd")
    assert "Its load was not observed: no reason given" in text
    assert "&lt;script&gt;" in text
    detail = httpx.get(f"{trained.url}/api/v1{trained.engine('odd')}", timeout=60).json()
    assert [(one["event"], one["weight_version"], one["detail"]) for one in detail["events"]] == [
        ("start", None, {})
    ]


@pytest.mark.browser
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)]
)
def test_the_section_reads_well(chromium: Browser, trained: Served, scheme: str, width: int) -> None:
    with watched(chromium, trained, scheme=scheme, width=width) as browse:
        for name in ("trained-on", "lost-weights", "odd", "untold"):
            page = browse.open(trained.engine(name))
            weights = page.locator("#weights")
            expect(weights.locator("h2")).to_have_text("Weights")
            for summary in weights.locator("summary").all():
                summary.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
            weights.screenshot(path=SCREENSHOTS / f"weights-{name}-{scheme}-{width}.png")
            page.close()
        browse.assert_quiet()


def test_the_guide_explains_the_section() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "dashboard.md").read_text(encoding="utf-8")
    for word in ("**Weights**", "missing", "unused", "differ", "version"):
        assert word in guide
