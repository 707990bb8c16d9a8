"""Fixtures of the pages' tests: one seeded server and one Chromium for all of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from browsing import Served, Watched, serve, watched
from fleet import fleet
from playwright.sync_api import Browser, sync_playwright

from scripts.checks import BROWSERS


# A module each: the fleet's health checks are news for five minutes, which one module's tests stay within.
@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server with a fleet in every state, once its findings and rule states are there."""
    with serve(tmp_path_factory.mktemp("web") / "fleet.db", fleet()) as running:
        while not (running.store.findings("default") and running.store.alerts("default")):
            time.sleep(0.1)
        yield running


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that no engine has reported to."""
    with serve(tmp_path_factory.mktemp("web") / "empty.db", []) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The Chromium that `make test` found or installed, headless.

    A module's own: Playwright keeps an event loop running, and other tests of a worker have theirs.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"none of {', '.join(BROWSERS)} is installed; `make test` installs Debian's chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found,
            args=[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--no-first-run",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Browser, served: Served) -> Iterator[Watched]:
    """A light, wide context over the fleet; the test fails when a page did anything odd."""
    with watched(chromium, served) as found:
        yield found
        found.assert_quiet()
