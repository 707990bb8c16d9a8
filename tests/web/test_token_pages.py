"""Tokens and drafts of a request as a person meets them: real Chromium, the real server, hostile text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
import token_story
from browsing import SCREENSHOTS, Served, Watched, serve, watched
from playwright.sync_api import Browser, Page, expect
from specscope_server.api.requests import MAX_STEPS
from specscope_server.web.request import JSON_STEPS, STEPS_SHOWN

pytestmark = pytest.mark.browser
LOOKS = [("light", 1440), ("dark", 390)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("tokens") / "tokens.db", []) as running:
        token_story.tell(running.store, datetime.now(UTC))
        yield running


@pytest.fixture
def see(chromium: Browser, told: Served) -> Iterator[Watched]:
    with watched(chromium, told) as found:
        yield found
        found.assert_quiet()


def output(page: Page) -> str:
    """The text of the tokens, each run once."""
    return page.locator(".tokens").inner_text().replace("↵", "").replace("⇥", "")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_pages_with_tokens_are_quiet_and_fit(
    chromium: Browser, told: Served, scheme: str, width: int
) -> None:
    with watched(chromium, told, scheme=scheme, width=width) as browse:
        for name in ("text", "hostile", "tree", "ids"):
            page = browse.open(f"/requests/{name}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
            page.screenshot(path=SCREENSHOTS / f"tokens-{name}-{scheme}-{width}.png", full_page=True)
            page.close()
        browse.assert_quiet()


def test_the_output_is_text_and_says_how_each_token_came(see: Watched) -> None:
    page = see.open("/requests/text")
    panel = page.locator("#output")
    expect(panel).to_contain_text("tiny <b>words</b>")
    shown = re.sub(r"\s+", "", output(page))
    assert shown.startswith("def" + re.sub(r"\s+", "", token_story.TEXT))
    # One character over four tokens: once, with a bar for each.
    run = page.locator(".rn", has_text="🗼").first
    expect(run.locator(".bar")).to_have_count(4)
    counted = sum(int(text) for text in panel.locator(".legend .none").all_inner_texts())
    assert counted == page.locator(".tokens .tk").count()


def test_tokens_are_walked_by_keyboard_and_said(see: Watched) -> None:
    page = see.open("/requests/text")
    said = page.locator("[data-token-said]")
    page.locator(".tokens").focus()
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("from a prefill")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("after a rejection; the draft had said “")
    expect(said).to_contain_text("the target's rank of it")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"step=\d+#tree"))
    expect(page.locator("#tree-h")).to_contain_text("Draft of step")


def test_what_the_draft_had_said_stands_in_a_table_without_javascript(
    chromium: Browser, told: Served
) -> None:
    with watched(chromium, told, javascript=False) as browse:
        page = browse.context.new_page()
        page.goto(f"{told.url}/requests/text")
        page.locator("#refusals summary").click()
        first = page.locator("#refusals tbody tr").first
        expect(first.locator("td").nth(1)).to_have_text(re.compile("^“.+”$"))
        first.locator("a").click()
        expect(page.locator("svg.tree")).to_be_visible()


def test_hostile_tokens_are_inert(see: Watched) -> None:
    page = see.open("/requests/hostile")
    text = output(page)
    for wanted in (
        "<script>alert(1)</script>",
        "\\u{202e}gnp.exe",
        "␛[31m␇",
        "4,840 characters more",
        "999999",
    ):
        assert wanted in text
    assert page.locator(".tokens script").count() == 0
    assert page.locator(".tokens .special").first.inner_text() == "<|eos|>"


def test_a_tree_is_drawn_with_its_accepted_path(see: Watched) -> None:
    page = see.open("/requests/tree?step=2")
    tree = page.locator("svg.tree")
    expect(tree.locator(".node.accepted")).to_have_count(2)
    expect(tree.locator(".node.refused")).to_have_count(8)
    expect(tree.locator(".node.own")).to_have_count(1)
    expect(page.locator("#tree")).to_contain_text(
        "Hanging on no path from the root (orphans, verified for nothing): 1,"
    )
    page.locator("#step-number").fill("3")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("step=3"))
    expect(page.locator("#tree-h")).to_have_text("Draft of step 3")
    expect(tree.locator(".node.accepted")).to_have_count(0)
    expect(tree.locator(".node.refused .note").first).to_have_text("target #3")
    page.goto(f"{see.url}/requests/tree?step=99")
    expect(page.locator("#tree .problem")).to_contain_text("Step 99 is not there: this request has 3")


def test_without_a_tokenizer_there_are_ids_and_the_reason(see: Watched) -> None:
    page = see.open("/requests/ids")
    expect(page.locator("#output")).to_contain_text("no tokenizer of hash 0123456789abcdef is registered")
    assert re.fullmatch(r"[\d\s]+", output(page))


def test_a_long_request_comes_in_windows(see: Watched) -> None:
    page = see.open(f"/requests/long?step={STEPS_SHOWN + 7}")
    expect(page.locator("#output")).to_contain_text(f"steps {STEPS_SHOWN + 1} to {2 * STEPS_SHOWN} of 1,000")
    expect(page.locator("#tree-h")).to_have_text(f"Draft of step {STEPS_SHOWN + 7}")
    page.locator("#output").get_by_role("link", name="Later").click()
    page.wait_for_url(re.compile("first=800"))
    expect(page.locator("#output")).to_contain_text("steps 801 to 1,000 of 1,000")


def test_a_request_is_downloaded_copied_and_deleted(chromium: Browser, told: Served) -> None:
    assert JSON_STEPS == MAX_STEPS
    now = datetime.now(UTC)
    token_story.request(told.store, "gone", token_story.told(token_story.ids("def the model"), now), now)
    with watched(chromium, told) as browse:
        browse.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=told.url)
        page = browse.open("/requests/gone")
        whole = httpx.get(f"{told.url}/api/v1/requests/gone").json()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download JSON").click()
        assert download.value.suggested_filename == "request-gone.json"
        assert json.loads(download.value.path().read_text()) == whole
        page.get_by_role("button", name="Copy as JSON").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert json.loads(page.evaluate("navigator.clipboard.readText()")) == whole
        page.locator("#delete").get_by_label("I mean this request").check()
        page.get_by_role("button", name="Delete it").click()
        page.wait_for_url(re.compile("/requests$"))
        assert told.store.request("default", "gone") is None
        browse.assert_quiet()


@pytest.mark.parametrize(
    ("headers", "data", "status"),
    [
        ({}, {"sure": "yes"}, 403),
        ({"Origin": "https://elsewhere.example"}, {"sure": "yes"}, 403),
        ({"Origin": "OURS"}, {"sure": ""}, 400),
        ({"Origin": "OURS"}, {"sure": "yes"}, 404),
    ],
)
def test_only_our_own_form_deletes(
    told: Served, headers: dict[str, str], data: dict[str, str], status: int
) -> None:
    sent = {name: told.url if value == "OURS" else value for name, value in headers.items()}
    uid = "nothing" if status == 404 else "text"
    answer = httpx.post(f"{told.url}/requests/{uid}/delete", headers=sent, data=data)
    assert answer.status_code == status
    assert told.store.request("default", "text") is not None
