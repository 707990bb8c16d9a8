"""The one error shape of the API: what happened, where, and what to do."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from specscope_server.store.port import Refused, StoreError

_log = logging.getLogger(__name__)


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="Stable name of the kind of error, for programs.")
    message: str = Field(description="What happened and where, for people.")
    hint: str = Field(description="What to do about it; may be empty.")


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        """Say no with an HTTP status and the three parts of the error."""
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint


RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorBody, "description": "Any error: the same shape at every endpoint."}
}
"""Documents the error shape; with a ``default`` response FastAPI leaves out its own 422."""


def error_response(
    status: int, code: str, message: str, hint: str = "", headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return an error in the one shape."""
    body = ErrorBody(error=ErrorDetail(code=code, message=message, hint=hint))
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def of_exception(error: Exception) -> JSONResponse:
    """Return the answer to an exception that an endpoint raised."""
    match error:
        case ApiError():
            return error_response(error.status, error.code, error.message, error.hint)
        case RequestValidationError():
            return error_response(400, "invalid_parameter", _parameters(error), "See /openapi.json.")
        case Refused():
            return error_response(400, "invalid_parameter", str(error), "See /openapi.json.")
        case StoreError():
            _log.warning("the database cannot be read: %s", error)
            return error_response(
                503, "database_unavailable", str(error), "Try again.", headers={"Retry-After": "2"}
            )
        case HTTPException():
            code = HTTPStatus(error.status_code).name.lower()
            headers = dict(error.headers) if error.headers else None
            hint = "See /openapi.json for what there is." if error.status_code == 404 else ""
            return error_response(error.status_code, code, str(error.detail), hint, headers)
        case _:
            return error_response(
                500, "internal_error", "The server failed.", "Its log says how; please report it."
            )


def not_found(what: str, name: str, hint: str) -> ApiError:
    """Return the 404 for a ``what`` that has no ``name``."""
    return ApiError(404, f"{what}_not_found", f"There is no {what} {name!r}.", hint)


def _parameters(error: RequestValidationError) -> str:
    parts: list[str] = []
    for problem in error.errors():
        where = ".".join(str(p) for p in problem["loc"][1:]) or str(problem["loc"][0])
        parts.append(f"{where}: {problem['msg']}")
    return "; ".join(parts)


def wants_api(request: Request) -> bool:
    """Say whether a path is the API's, so that its errors have the API's shape."""
    return request.url.path.startswith("/api/") or request.url.path in ("/healthz", "/openapi.json")
