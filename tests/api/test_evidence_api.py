"""The evidence that is answered is the one that the rules saw."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from serverkit import otlp
from serverkit.live import Live
from specscope_server.diagnosis.model import Evidence

PATH = f"/api/v1/engines/{otlp.engine_uid()}/evidence"
API = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text("utf-8")


def test_every_fact_is_answered_and_documented(told: Live) -> None:
    answer = told.get(PATH)
    names = {field.name for field in fields(Evidence)}
    assert set(answer["evidence"]) == names
    section = API.split(f"### `GET {PATH.replace(otlp.engine_uid(), '{engine_uid}')}`")[1].split("\n### ")[0]
    assert not [name for name in names if f"`{name}`" not in section]


def test_it_is_what_the_engine_told(told: Live) -> None:
    answer = told.get(PATH)
    found = answer["evidence"]
    assert (answer["engine_uid"], answer["window_s"]) == (otlp.engine_uid(), 300)
    assert found["counts"] == {
        "steps": 8, "drafted_depth": 24, "drafted_nodes": 24, "accepted": 12, "bonus": 8, "committed": 20,
        "zero_steps": 1, "undrafted_steps": 0,
    }  # fmt: skip
    assert found["steps"]["steps"] == 4
    assert found["window_requests"] == {"user": 5}
    assert found["window"]
    assert found["since_start"]


def test_another_window_is_said(told: Live) -> None:
    assert told.get(PATH, judge_s=60)["window_s"] == 60


def test_nothing_in_it_is_no_json(told: Live) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(told.client.get(PATH).text, parse_constant=refuse)


def test_an_engine_that_is_not_there(told: Live) -> None:
    answer = told.client.get("/api/v1/engines/0123456789abcdef/evidence")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "engine_not_found")
