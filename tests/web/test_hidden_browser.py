"""Hidden states in a real browser: figures drawn, nothing blocked, no page wider than its window."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import hidden_story as story
import pytest
from browsing import SCREENSHOTS, Served, watched
from playwright.sync_api import Browser
from serverkit.live import serving
from storekit import facts

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('looks') / 'store.db'}") as live:
        story.full_request(live.store, "u-swapped", (2, 1, 0))
        story.hostile_request(live.store)
        story.huge_request(live.store)
        story.refer(live.store)
        story.engine(live.store, datetime.now(UTC))
        yield Served(live.url, live.store, {"engine": facts.ENGINE})


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_every_size_of_hidden_states_fits_and_loads_quietly(
    chromium: Browser, hidden: Served, scheme: str, width: int
) -> None:
    drawn = {"u-swapped": 2, "u-hostile": 1, "u-huge": 1, "engine": 1}
    with watched(chromium, hidden, scheme=scheme, width=width) as browse:
        for name, figures in drawn.items():
            page = browse.open(hidden.engine(name) if name == "engine" else f"/requests/{name}")
            assert page.locator("section:has(#hidden-h) [data-figure]:has(.main-svg)").count() == figures
            assert page.locator("img[src=x], script:not([src])").count() == 0, name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
            page.screenshot(path=SCREENSHOTS / f"hidden-{name}-{scheme}-{width}.png", full_page=True)
            page.close()
        browse.assert_quiet()
