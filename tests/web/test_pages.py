"""The pages over HTTP: what is documented, sent, scoped and refused, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from browsing import Served
from fastapi.routing import APIRoute
from fleet import HOSTILE_NAME
from specscope_frontend import STATIC
from specscope_server.store import open_store
from specscope_server.web import assets, routes

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "dashboard.md"


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as opened:
        yield opened


class _Inline(HTMLParser):
    """Collects whatever a strict policy would block."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.found += [f"{tag} {n}" for n in names if n == "style" or n.startswith("on")]
        # What a form posts to answers no GET.
        asked = ("href", "src", "hx-get", *(("action",) if names.get("method", "get") != "post" else ()))
        self.links += [v for n in asked if (v := names.get(n)) is not None]


def pages(served: Served) -> list[str]:
    return [
        "/",
        "/requests",
        "/alerts",
        served.engine("chat-canary"),
        served.engine(HOSTILE_NAME),
        served.request("broken-7"),
    ]


def test_every_page_is_a_route_and_in_the_guide(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    answered = {
        route.path
        for route in routes.router(store).routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    store.close()
    assert answered - {"/static/{name:path}", "/favicon.ico", "/{path:path}"} == set(routes.PAGES)
    guide = GUIDE.read_text(encoding="utf-8")
    missing = [page for page in routes.PAGES if f"`{page}`" not in guide]
    assert not missing, f"docs/guide/dashboard.md does not describe {missing}"


def test_pages_carry_the_policy_and_nothing_it_would_block(client: httpx.Client, served: Served) -> None:
    for path in [*pages(served), "/nowhere", "/requests/none", "/engines/none"]:
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        found = _Inline()
        found.feed(answer.text)
        assert found.found == [], path
        assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in found.links), path


def test_every_link_of_the_pages_leads_somewhere(client: httpx.Client, served: Served) -> None:
    seen: set[str] = set()
    for path in pages(served):
        found = _Inline()
        found.feed(client.get(path).text)
        seen |= {link.partition("#")[0] for link in found.links} - {""}
    # One request and engine of each kind stands for the many that lists link to.
    kinds: dict[str, str] = {}
    for link in sorted(seen):
        kinds.setdefault(re.sub(r"/(requests|engines)/[0-9a-f]+", r"/\1/id", link), link)
    bad = {link: code for link in kinds.values() if (code := client.get(link).status_code) != 200}
    assert not bad


def test_numbers_agree_between_overview_engine_page_and_api(client: httpx.Client, served: Served) -> None:
    path = served.engine("retired")  # its numbers stand still
    working = re.search(r"verify steps = \((\S+) \+ (\S+)\) ÷ (\S+)</span>", client.get(path).text)
    assert working is not None
    on_overview = client.get("/").text
    assert working[0] in on_overview
    accepted, bonus, steps = (int(n.replace(",", "")) for n in working.groups())
    card = on_overview.partition(f'id="engine-{served.engines["retired"]}"')[2]
    shown = re.search(r'class="value">([\d.]+)', card)
    assert shown is not None
    assert shown[1] == f"{(accepted + bonus) / steps:.2f}"
    asked = client.get(f"/api/v1{path}").json()
    assert f'"{served.engines["retired"]}"' in str(asked).replace("'", '"')


def test_a_request_page_and_the_api_tell_the_same_totals(client: httpx.Client, served: Served) -> None:
    path = served.request("three-thousand")
    totals = str(client.get(f"/api/v1{path}").json())
    text = client.get(path).text
    found = re.search(r"([\d,]+) of ([\d,]+) drafted positions were accepted", text)
    assert found is not None
    for number in found.groups():
        assert number.replace(",", "") in totals


def test_an_engine_without_data_shows_a_reason_and_no_zero(client: httpx.Client, served: Served) -> None:
    text = client.get(served.engine("night-batch")).text
    assert text.count('<span class="value none">–</span>') == 4
    assert "no data in the last hour: no request so far" in text
    assert "data-figure" not in text


def test_health_checks_are_told_apart_from_silence(client: httpx.Client, served: Served) -> None:
    text = client.get(served.engine("standby")).text
    assert "health checks only" in text
    listed = client.get("/requests", params={"engine": served.engines["standby"]}).text
    assert "No request matches these filters" in listed
    listed = client.get("/requests", params={"engine": served.engines["standby"], "kind": "any"}).text
    assert "HEALTH_CHECK_" in listed


def test_detail_level_summary_says_what_is_missing_and_how_to_get_it(
    client: httpx.Client, served: Served
) -> None:
    text = client.get(served.request("summary-1")).text
    assert "not recorded at detail level summary" in text
    assert "SPECSCOPE_DETAIL=steps" in text


def test_token_ids_that_were_not_recorded_are_said_to_be_so(client: httpx.Client, served: Served) -> None:
    text = client.get(served.request("three-thousand")).text
    assert "Token ids are not recorded at detail level steps: set SPECSCOPE_DETAIL=tokens" in text


def test_a_workspace_sees_its_own_and_keeps_its_name_in_links(client: httpx.Client, served: Served) -> None:
    assert "elsewhere" not in client.get("/").text
    path = served.engine("elsewhere")
    assert client.get(path).status_code == 404
    assert client.get(served.request("research-1")).status_code == 404
    text = client.get("/", params={"workspace": "research"}).text
    assert f'href="{path}?workspace=research"' in text
    assert "chat-healthy" not in text
    assert client.get(path, params={"workspace": "research"}).status_code == 200


def test_paging_walks_through_all_requests_without_repeating(client: httpx.Client, served: Served) -> None:
    seen: list[str] = []
    link = f"/requests?engine={served.engines['retired']}"
    while link:
        text = client.get(link).text
        seen += re.findall(r'<tr id="r-([0-9a-f]+)"', text)
        older = re.search(r'rel="next" href="([^"]+)"', text)
        link = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) > 50
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"cursor": "nonsense"}, "cursor is not one of ours"),
        ({"min_length": "much"}, "smallest acceptance length must be a number from 0 on, not &#39;much&#39;"),
        ({"max_length": "-1"}, "largest acceptance length must be a number from 0 on"),
        ({"max_length": "nan"}, "largest acceptance length must be a number from 0 on"),
        ({"flag": "odd"}, "There is no flag &#39;odd&#39;; known: zero_acceptance"),
        ({"state": "odd"}, "There is no state &#39;odd&#39;"),
        ({"kind": "odd"}, "There is no kind &#39;odd&#39;"),
        ({"window": "odd"}, "There is no time window &#39;odd&#39;"),
        ({"flags": "gap"}, "There is no filter &#39;flags&#39;; known: q, engine, model"),
        ({"<script>": "1"}, "There is no filter &#39;&lt;script&gt;&#39;"),
    ],
)
def test_what_a_url_asks_wrongly_is_said(client: httpx.Client, query: dict[str, str], says: str) -> None:
    answer = client.get("/requests", params=query)
    assert answer.status_code == 200
    assert says in answer.text


def test_filters_narrow_the_list(client: httpx.Client, served: Served) -> None:
    broken = {"engine": served.engines["chat-canary"]}
    assert 'id="r-' in client.get("/requests", params={**broken, "flag": "gap"}).text
    assert 'id="r-' not in client.get("/requests", params={**broken, "min_length": "3"}).text
    healthy = {"engine": served.engines["retired"]}
    assert 'id="r-' not in client.get("/requests", params={**healthy, "flag": "gap"}).text
    assert "nothing accepted" in client.get("/requests", params={**broken, "flag": "zero_acceptance"}).text


def test_a_refresh_sends_the_live_part_alone(client: httpx.Client) -> None:
    whole, part = client.get("/alerts").text, client.get("/alerts", headers={"HX-Request": "true"}).text
    assert "<html" in whole
    assert "<html" not in part
    assert '<h2 id="rules-h">Firing</h2>' in part


def test_unknown_addresses_say_what_to_do_in_their_own_way(client: httpx.Client) -> None:
    for path, says in {
        "/requests/abc": "The engine's rid, a trace id, or the start of any of them can be searched for",
        "/engines/abc": "a restarted engine has a new one",
        "/some/page": "There is no page",
    }.items():
        answer = client.get(path)
        assert answer.status_code == 404
        assert says in answer.text.replace("\n", " ")
    assert client.get("/api/v1/nonsense").status_code == 404
    assert client.get("/api/v1/nonsense").headers["content-type"].startswith("application/json")
    assert client.get("/v1/nonsense").status_code == 404


def test_static_files_are_compressed_and_kept_under_their_hash(client: httpx.Client) -> None:
    answer = client.get(assets.url("vendor/plotly-cartesian.min.js"))
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.content == (STATIC / "vendor" / "plotly-cartesian.min.js").read_bytes()
    plain = client.get("/static/app.css", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["cache-control"] == "no-cache"
    again = client.get("/static/app.css", headers={"if-none-match": plain.headers["etag"]})
    assert again.status_code == 304
    assert client.get("/favicon.ico").headers["content-type"].startswith("image/svg+xml")


@pytest.mark.parametrize(
    "name", ["none.js", "../__init__.py", "%2e%2e/__init__.py", "vendor", "vendor//htmx.min.js", ""]
)
def test_static_files_are_those_of_the_package_alone(served: Served, name: str) -> None:
    with httpx.Client(base_url=served.url) as raw:
        assert raw.get(f"/static/{name}").status_code == 404


def test_an_asset_that_does_not_exist_is_refused_when_rendering() -> None:
    with pytest.raises(LookupError, match=r"no static file 'none\.css'"):
        assets.url("none.css")


def test_a_link_beyond_the_last_step_shows_the_last_ones(client: httpx.Client, served: Served) -> None:
    text = client.get(served.request("three-thousand"), params={"first": "99999"}).text
    assert "Steps 2,801 to 3,000 of 3,000." in text
    assert client.get(served.request("three-thousand"), params={"first": "-1"}).status_code == 400
