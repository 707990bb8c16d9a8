"""The pages as a person meets them: real Chromium, the real server, a store with a fleet in it."""

from __future__ import annotations

import re

import callers
import pytest
from browsing import SCREENSHOTS, Served, Watched, watched
from fleet import HOSTILE, HOSTILE_NAME
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.browser

LOOKS = [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)]
MAIN = {"overview", "requests", "alerts", "alert-rule", "status", "engine-broken", "request-broken"}
ALL_IN = ("light", 1440)
"""The look in which every page is opened; the others show one page of each kind."""


def paths(served: Served) -> dict[str, str]:
    return {
        "overview": "/",
        "requests": "/requests",
        "alerts": "/alerts",
        "alert-rules": "/alerts/rules",
        "alert-rule": "/alerts/rules/collapse",
        "alert-silences": "/alerts/silences",
        "alert-one": f"/alerts/on/{served.engines['chat-canary']}/silent_path",
        "status": "/status",
        "engine-healthy": served.engine("chat-healthy"),
        "engine-broken": served.engine("chat-canary"),
        "engine-tree": served.engine("code-tree"),
        "engine-blind": served.engine("eu-blind"),
        "engine-idle": served.engine("night-batch"),
        "engine-silent": served.engine("retired"),
        "engine-hostile": served.engine(HOSTILE_NAME),
        "request-running": served.request("find-me-42"),
        "request-broken": served.request("broken-7"),
        "request-long": served.request("three-thousand"),
        "request-summary": served.request("summary-1"),
    }


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_page_loads_quietly_and_fits(
    chromium: Browser, served: Served, scheme: str, width: int
) -> None:
    with watched(chromium, served, scheme=scheme, width=width) as browse:
        for name, path in paths(served).items():
            if (scheme, width) != ALL_IN and name not in MAIN:
                continue
            page = browse.open(path)
            assert page.locator("h1").count() == 1, name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
            page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}-{width}.png", full_page=True)
            page.close()
        browse.assert_quiet()


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_first_run_shows_how_to_connect(chromium: Browser, empty: Served, scheme: str, width: int) -> None:
    with watched(chromium, empty, scheme=scheme, width=width) as browse:
        page = browse.open("/")
        expect(page.locator("h1")).to_have_text("Waiting for the first engine")
        expect(page.locator("code", has_text="SPECSCOPE_ENDPOINT")).to_have_text(
            f"export SPECSCOPE_ENDPOINT={empty.url}"
        )
        page.screenshot(path=SCREENSHOTS / f"first-run-{scheme}-{width}.png", full_page=True)
        for path in ("/requests", "/alerts", "/status"):
            browse.open(path)
        browse.assert_quiet()


def test_search_finds_a_request_by_its_rid(browse: Watched) -> None:
    page = browse.open("/")
    page.keyboard.press("/")
    page.keyboard.type("find-me-42")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="find-me-42").click()
    expect(page.locator("h1")).to_contain_text("tokens per verify step")
    expect(page.locator(".ids")).to_contain_text("find-me-42")


def test_search_finds_the_same_request_by_trace_id_and_uid(browse: Watched, served: Served) -> None:
    page = browse.open(served.request("find-me-42"))
    ids = page.locator(".ids code").all_inner_texts()
    assert ids[0] == "find-me-42"
    for wanted in ids:
        page = browse.open(f"/requests?q={wanted}")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody tr")).to_contain_text("find-me-42")


def test_a_callers_spans_and_records_stand_on_the_requests_page(browse: Watched, served: Served) -> None:
    page = browse.open(served.request("find-me-42"))
    panel = page.locator("#trace")
    expect(panel.locator("h3")).to_have_text([re.compile("Joined from trace"), "Log records"])
    expect(panel).to_contain_text("a span in it has the id of this request's answer")
    expect(panel.locator("table.trace tbody tr")).to_have_count(16)
    expect(panel.locator("table.logs td.body")).to_have_text(list(callers.BODIES))
    browse.assert_quiet()


def test_the_broken_link_is_unmissable(browse: Watched, served: Served) -> None:
    page = browse.open("/")
    first = page.locator(".engine").first
    expect(first).to_contain_text("chat-canary")
    expect(first).to_contain_text("faulty")
    expect(page.locator(".finding").first).to_contain_text("fc bypassed")
    first.get_by_role("link", name="chat-canary").click()
    station = page.locator("[id='boundary-draft.fc']")
    expect(station).to_have_class(re.compile("st-broken"))
    expect(station).to_contain_text("never ran")
    expect(page.locator(".break-say", has_text="draft.fc")).to_contain_text(
        re.compile(r"expected [\d,]+, observed 0\. It never ran")
    )
    expect(page.locator("[id='boundary-draft.extend']")).to_have_class(re.compile("st-ok"))
    assert page.locator("[id='boundary-draft.fc']").evaluate("e => e.getBoundingClientRect().top") < 900


def test_a_boundary_that_cannot_be_seen_says_why_and_shows_no_number(browse: Watched, served: Served) -> None:
    page = browse.open(served.engine("code-tree"))
    station = page.locator("[id='boundary-draft.forward']")
    expect(station).to_contain_text("not observable: calls inside a captured graph cannot be seen")
    expect(station.locator(".ratio")).to_have_count(0)


def test_an_unknown_request_helps(chromium: Browser, served: Served) -> None:
    with watched(chromium, served) as browse:
        page = browse.context.new_page()
        answer = page.goto(f"{served.url}/requests/find-me-42")
        assert answer is not None
        assert answer.status == 404
        expect(page.locator("h1")).to_contain_text("There is no request find-me-42")
        page.screenshot(path=SCREENSHOTS / "missing-light-1440.png", full_page=True)
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert not browse.outside


def test_theme_is_remembered(browse: Watched) -> None:
    page = browse.open("/")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    button = page.locator("[data-theme-toggle]")
    button.click()
    button.click()
    expect(button).to_have_text("Dark")
    assert page.evaluate(background) != light
    again = browse.open("/requests")
    assert again.evaluate("document.documentElement.dataset.theme") == "dark"
    assert again.evaluate(background) != light


def test_refresh_keeps_the_readers_place(browse: Watched, served: Served) -> None:
    page = browse.open(served.engine("chat-healthy"))
    page.locator("#time-table > summary").click()
    link = page.get_by_role("link", name="Its requests")
    link.focus()
    page.evaluate("scrollTo(0, 400)")
    figure = page.locator("[data-figure] .main-svg").first
    figure.evaluate("e => { e.dataset.marked = 'same'; }")
    swaps = page.evaluate_handle("() => ({ n: 0 })")
    swaps.evaluate("(s) => document.addEventListener('htmx:after:swap', () => { s.n += 1; })")
    page.wait_for_function("(s) => s.n >= 2", arg=swaps)
    assert page.locator("#time-table").evaluate("e => e.open")
    assert page.evaluate("scrollY") == 400
    assert page.evaluate("document.activeElement.textContent") == "Its requests"
    expect(page.locator("[data-marked=same]")).to_have_count(1)


def test_a_paused_page_asks_for_nothing(browse: Watched) -> None:
    page = browse.open("/alerts")
    live = page.locator("[data-live]")
    expect(live).to_have_text("Live")
    live.click()
    expect(live).to_have_text("Paused")
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.evaluate("htmx.trigger('#live', 'every')")
    page.evaluate("new Promise((later) => setTimeout(later, 300))")
    assert asked == []
    live.click()
    with page.expect_request("**/alerts"):
        page.evaluate("htmx.trigger('#live', 'every')")


def test_a_silent_server_is_said_and_the_page_kept(chromium: Browser, served: Served) -> None:
    with watched(chromium, served) as browse:
        page = browse.open("/alerts")
        browse.context.route("**/alerts", lambda route: route.abort())
        expect(page.locator("[data-live]")).to_contain_text("No answer since", timeout=30_000)
        expect(page.locator("h1")).to_have_text("Alerts")
        browse.context.unroute("**/alerts")
        expect(page.locator("[data-live]")).to_have_text("Live", timeout=30_000)


def test_hostile_names_stay_text(browse: Watched, served: Served) -> None:
    for path in (
        "/",
        served.engine(HOSTILE_NAME),
        "/requests",
        "/alerts",
        f"/requests?engine={served.engines[HOSTILE_NAME]}",
    ):
        page = browse.open(path)
        assert page.locator("img[src=x], script:not([src]), main b, main i").count() == 0, path
    shown = page.locator("td.id a").evaluate_all("links => links.map(a => a.title)")
    for rid in HOSTILE:
        kept = rid.replace("\0", "")
        assert any(kept in title.replace("\ufffd", "") for title in shown), rid
    for link in page.locator("td.id a").evaluate_all("links => links.map(a => a.pathname)")[: len(HOSTILE)]:
        opened = browse.open(link)
        assert opened.locator("img[src=x], script:not([src]), main b, main i").count() == 0
        opened.close()


def test_without_javascript_the_pages_still_tell(chromium: Browser, served: Served) -> None:
    with watched(chromium, served, javascript=False) as browse:
        page = browse.context.new_page()
        page.goto(served.url)
        expect(page.locator(".engine").first).to_contain_text("faulty")
        expect(page.locator(".engine .spark").first).to_be_visible()
        page.goto(served.url + served.request("broken-7"))
        expect(page.locator("h1")).to_contain_text("draft.fc never ran")
        page.locator("#steps-table > summary").click()
        expect(page.locator("#steps-table tbody tr").first).to_be_visible()


def test_a_long_request_is_shown_in_windows(browse: Watched, served: Served) -> None:
    page = browse.open(served.request("three-thousand"))
    expect(page.locator("#steps-h + p")).to_contain_text("Steps 1 to 400 of 3,000")
    page.get_by_role("link", name="Later steps").click()
    expect(page.locator("#steps-h + p")).to_contain_text("Steps 401 to 800 of 3,000")
    page.get_by_role("link", name="Earlier steps").click()
    expect(page.locator("#steps-h + p")).to_contain_text("Steps 1 to 400 of 3,000")


def test_keyboard_reaches_content_and_formulas(browse: Watched) -> None:
    page = browse.open("/requests")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    hint = page.locator(".hint", has_text="Acceptance length")
    hint.focus()
    expect(hint.locator(".tip")).to_be_visible()
    expect(hint.locator(".tip")).to_contain_text("(accepted + bonus) ÷ verify steps")
