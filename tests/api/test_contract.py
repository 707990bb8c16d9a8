"""The API's description is valid OpenAPI, and its documentation names everything there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from serverkit.live import Live
from specscope_server import keep_options
from specscope_server import settings as server_settings
from specscope_server.api.router import PREFIX
from specscope_server.ingest.refusal import RPC_CODES
from specscope_server.ingest.signals import SIGNALS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
API = (REFERENCE / "api.md").read_text()


@pytest.fixture(scope="module")
def openapi(told: Live) -> dict[str, Any]:
    return told.client.get("/openapi.json").json()


def sections() -> dict[str, str]:
    """Each ``### `GET /path` `` heading of the reference with the text below it."""
    parts = re.split(r"^### `(.+?)`\n", API, flags=re.MULTILINE)
    return {name: text.split("\n## ")[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def operations(openapi: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }


def test_openapi_is_valid(openapi: dict[str, Any]) -> None:
    validate(openapi)


def test_documentation_has_exactly_the_endpoints_there_are(openapi: dict[str, Any]) -> None:
    assert set(sections()) == set(operations(openapi)) | {f"POST {path}" for path in SIGNALS}


def test_every_parameter_is_documented_at_its_endpoint(openapi: dict[str, Any]) -> None:
    missing = [
        f"{name}: {parameter['name']}"
        for name, operation in operations(openapi).items()
        for parameter in operation.get("parameters", [])
        if f"`{parameter['name']}`" not in sections()[name]
    ]
    assert not missing


def test_every_operation_documents_the_error_shape(openapi: dict[str, Any]) -> None:
    for name, operation in operations(openapi).items():
        schema = operation["responses"]["default"]["content"]["application/json"]["schema"]
        assert schema["$ref"].endswith("/ErrorBody"), name
        assert "422" not in operation["responses"], name
    assert all(path.startswith((PREFIX, "/healthz")) for path in openapi["paths"])


def test_every_top_level_field_is_documented(openapi: dict[str, Any]) -> None:
    schemas = openapi["components"]["schemas"]
    for name, operation in operations(openapi).items():
        reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        for field in schemas[reference.rpartition("/")[2]]["properties"]:
            assert f"`{field}`" in sections()[name], f"{name}: {field}"


@pytest.mark.parametrize("status", RPC_CODES)
def test_every_otlp_status_is_documented(status: int) -> None:
    assert re.search(rf"^\| {status} ", API, re.MULTILINE)


@pytest.mark.parametrize("variable", server_settings.ALL_VARIABLES)
def test_every_variable_is_documented(variable: str) -> None:
    assert f"| `{variable}` |" in (REFERENCE / "server-settings.md").read_text()


def test_all_variables_are_listed() -> None:
    values = (*vars(server_settings).values(), *vars(keep_options).values())
    named = {v for v in values if isinstance(v, str) and v.startswith("SPECSCOPE_")}
    assert named == set(server_settings.ALL_VARIABLES)
