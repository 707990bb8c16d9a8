"""The section on weights, from documents that no tracer of ours would send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from specscope_server.store.model import EngineEvent
from specscope_server.web import weights
from specscope_server.web.format import DASH

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HUGE = 10**400
"""A JSON number that no float holds."""


class _Row:
    """As much of an engine as the section reads."""

    speculation = True

    def __init__(self, told: dict[str, Any], event: dict[str, Any] | None = None) -> None:
        self.config = {"weights": told}
        self.events = () if event is None else (EngineEvent(NOW, "weight_update", "p", None, event),)


def _built(told: dict[str, Any], event: dict[str, Any] | None = None) -> weights.WeightsView:
    return weights.build(_Row(told, event))  # pyright: ignore[reportArgumentType]


def test_numbers_that_no_float_holds_are_not_shown() -> None:
    view = _built({"drafts": [{"tensors": [{"mean": HUGE}]}]}, {"seconds": HUGE, "changed_count": -HUGE})
    assert view.drafts[0].tensors[0].mean == DASH
    assert view.events[0].text == ""


def test_a_count_that_was_not_told_is_not_0() -> None:
    assert _built({}, {"changed_count": None}).events[0].text == ""


@pytest.mark.parametrize(
    ("draft", "tone", "summary"),
    [
        ({"observed": True}, "lost", "load not told"),
        ({"observed": True, "names": {"all": -3, "loaded": 1, "unused_count": 0}}, "lost", "load not told"),
        ({"observed": True, "statuses": {"missing": 5}}, "bad", "5 to check"),
        (
            {"observed": True, "names": {"all": 1, "loaded": 1, "unused_count": 0}},
            "ok",
            "nothing missing, nothing unused",
        ),
    ],
)
def test_only_what_was_told_whole_is_called_complete(draft: dict[str, Any], tone: str, summary: str) -> None:
    view = _built({"drafts": [draft]})
    assert (view.tone, view.summary) == (tone, summary)


def test_lists_without_end_are_cut_and_said_to_be() -> None:
    many: list[dict[str, Any]] = [{}] * 80_000
    view = _built({"drafts": [{"tensors": many, "oddities": many}, *many]})
    assert len(view.drafts) == weights.MAX_DRAFTS
    assert len(view.drafts[0].oddities) == weights.MAX_ROWS
    assert len(view.drafts[0].tensors) + view.drafts[0].left_out == len(many)
