"""Every endpoint of the API; adding a resource is adding its module and a line here."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends

from specscope_server.api import (
    alerts,
    engines,
    evidence,
    expectations,
    findings,
    hidden,
    references,
    requests,
    rules,
    series,
    silences,
    status,
    tokenizers,
)
from specscope_server.api.common import only_known_parameters

PREFIX: Final = "/api/v1"

router = APIRouter(dependencies=[Depends(only_known_parameters)])
for _module in (
    *(engines, evidence, requests, hidden, references, tokenizers, expectations),
    *(findings, alerts, rules, silences, series, status),
):
    router.include_router(_module.router, prefix=PREFIX)
router.include_router(status.health)
