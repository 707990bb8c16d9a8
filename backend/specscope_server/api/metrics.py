"""``/metrics``: the ingest statistics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from specscope_server.api.common import PartsOf
from specscope_server.ingest import scrape

PATH = "/metrics"
router = APIRouter(include_in_schema=False)


@router.get(PATH)
def get_metrics(request: Request, parts: PartsOf) -> Response:
    """Return all metrics in the format that the client asks for: Prometheus text or OpenMetrics.

    Query parameters are ignored: a scraper may add its own.
    """
    body, content_type = scrape.exposition(parts.receiver.stats, request.headers.get("accept", ""))
    # Not by ``media_type``: Starlette would add a second charset.
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
