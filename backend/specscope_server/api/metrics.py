"""``/metrics``: the ingest statistics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from specscope_server.api.alert_metrics import AlertMetrics
from specscope_server.api.common import PartsOf
from specscope_server.auth.gate import caller_of
from specscope_server.ingest import scrape
from specscope_server.store.port import StoreError

PATH = "/metrics"
router = APIRouter(include_in_schema=False)


@router.get(PATH)
def get_metrics(request: Request, parts: PartsOf) -> Response:
    """Return all metrics in the format that the client asks for: Prometheus text or OpenMetrics.

    Query parameters are ignored: a scraper may add its own.
    """
    accept = request.headers.get("accept", "")
    found = AlertMetrics(parts.store, caller_of(request).sees)
    try:
        body, content_type = scrape.exposition(parts.receiver.stats, accept, found)
    except StoreError:
        # What the receivers refuse meanwhile must still be told: that is when somebody wants to know.
        body, content_type = scrape.exposition(parts.receiver.stats, accept)
    # Not by ``media_type``: Starlette would add a second charset.
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
