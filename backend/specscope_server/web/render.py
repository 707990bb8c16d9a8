"""Templates to responses: escaping, filters, links, and the policy every page is sent with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from specscope_frontend import TEMPLATES

from specscope_server.auth.gate import caller_of
from specscope_server.web import assets, stats
from specscope_server.web import format as f
from specscope_server.web.windows import WINDOWS

DEFAULT_WORKSPACE: Final = "default"

# Scripts and styles come from our own files only; nothing inline, nothing from another host. data: is for
# the two drawings inside Plotly's stylesheet. See docs/adr for what Plotly needed.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "HX-Request",
}


def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        count=f.count,
        decimal=f.decimal,
        share=f.share,
        significant=f.significant,
        seconds=f.seconds,
        utc=f.utc,
        clock=f.clock,
        iso=f.iso,
        short=f.short,
        json=_json,
    )
    cast("dict[str, object]", env.globals).update(
        static=assets.url, formulas=stats.FORMULAS, DASH=f.DASH, all_windows=WINDOWS
    )
    return env


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


_ENV = _environment()


def link(workspace: str, path: str, **query: object) -> str:
    """Return a URL on this server, with the workspace where it is not the default one.

    ``path`` is taken apart at ``/`` and each piece quoted; empty and ``None`` values are left out.
    """
    wanted = {k: str(v) for k, v in query.items() if v is not None and v != ""}
    if workspace != DEFAULT_WORKSPACE:
        wanted["workspace"] = workspace
    quoted = "/".join(quote(piece, safe="") for piece in path.split("/"))
    return f"{quoted}?{urlencode(wanted)}" if wanted else quoted


def page(
    request: Request,
    name: str,
    view: object,
    *,
    title: str,
    workspace: str,
    workspaces: list[str],
    now: datetime,
    live_s: int | None = None,
    figures: bool = False,
    status: int = 200,
    signed_out: bool = False,
) -> HTMLResponse:
    """Return a page, or only its live part when htmx asks to refresh it.

    ``name`` is the template below ``pages/``, which sees the view model as ``view``. ``live_s`` is the
    seconds between refreshes, ``None`` for a page that does not change. ``figures`` loads Plotly.
    ``signed_out`` leaves out what leads to other pages.
    """
    me = caller_of(request)
    context: Mapping[str, Any] = {
        "view": view,
        "title": title,
        "page": name,
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "workspace": workspace,
        "workspaces": [name for name in workspaces if me.sees(name)],
        "me": me,
        "signed_out": signed_out,
        "now": now,
        "live_s": live_s,
        "figures": figures,
        "base_url": str(request.base_url).rstrip("/"),
        "link": partial(link, workspace),
        "ago": partial(f.ago, now=now),
    }
    only_live = request.headers.get("HX-Request") == "true" and status == 200
    template = f"pages/{name}.html" if only_live else "base.html"
    return HTMLResponse(_ENV.get_template(template).render(context), status_code=status, headers=HEADERS)
