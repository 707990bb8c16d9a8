"""Series by slice and position over HTTP, and what is refused rather than answered with nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serverkit import otlp
from serverkit.live import Live, serving
from specscope import convention as c
from specscope import rollup
from specscope_server.store.sliced import SLICES


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that was told one bucket with every dimension."""
    made = rollup.Rollup()
    for context, mode, copied in ((3, c.EAGER, True), (9, c.GRAPH, False), (12, c.GRAPH, None)):
        step = rollup.StepFacts(3, 3, 1, 1, 2, context, 0, 4, mode, 0, 0.7, copied)
        made.add(otlp.now_ns(), step)
    [(bucket, rows)] = made.take()
    told = otlp.rollup_span(0, **{c.ROLLUP_BUCKET: bucket, c.ROLLUP_ROWS: rollup.pack(rows)})
    with serving(f"sqlite:///{tmp_path_factory.mktemp('sliced') / 'store.db'}") as found:
        assert found.export(otlp.traces(told)).status_code == 200
        yield found


def test_every_dimension_has_its_slices(sliced: Live) -> None:
    wanted = {
        "all": [],
        "context": ["2-3", "8-15"],
        "row": ["0"],
        "batch": ["4-7"],
        "mode": ["eager", "graph"],
        "cached": ["miss"],
        "temperature": ["<=1"],
        "copy_like": ["yes", "no"],
    }
    assert set(wanted) == set(SLICES) == set(rollup.DIMENSIONS)
    for dimension, slices in wanted.items():
        for bucket in (10, 60):
            answer = sliced.get("/api/v1/series", dimension=dimension, bucket=bucket)
            assert (answer["dimension"], answer["slices"], answer["left_out"]) == (dimension, slices, 0)
            assert [item["slice"] for item in answer["items"]] == (slices or [""])
            steps = sum(item["counts"]["verify_steps"] for item in answer["items"])
            assert steps == (2 if dimension == "copy_like" else 3), "one step's copy-likeness was not known"
            assert all(name in SLICES[dimension] for name in slices)


def test_one_slice_and_one_position(sliced: Live) -> None:
    [item] = sliced.get("/api/v1/series", dimension="context", slice="8-15", position=2)["items"]
    assert item["counts"]["verify_steps"] == 2
    assert item["positions"] == [{"position": 2, "drafted": 2, "accepted": 0, "rate": 0.0}]
    [item] = sliced.get("/api/v1/series", position=9)["items"]
    assert item["positions"] == [], "nothing was drafted there: no position, not a 0"
    assert sliced.get("/api/v1/series", dimension="context", slice="1")["items"] == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"dimension": "rows"}, "dimension"),
        ({"dimension": "mode", "slice": "fast"}, "dimension mode has no slice 'fast'"),
        ({"dimension": "context", "slice": "9-15"}, "dimension context has no slice '9-15'"),
        ({"dimension": "mode", "slice": "eager' OR '1'='1"}, "has no slice"),
        ({"slice": "eager"}, "dimension all has no slice 'eager'"),
        ({"dimension": "batch", "position": 1}, "dimension batch is not counted by position"),
        ({"position": 0}, "position"),
        ({"position": "1; DROP TABLE request"}, "position"),
        ({"bucket": 15}, "bucket"),
        ({"slices": "eager"}, "unknown parameter 'slices'"),
        ({"dimension": "mode", "since": "2020-01-01", "until": "2020-01-02"}, "more than 500 points"),
        ({"since": "2020-01-01", "until": "2020-01-02"}, "more than 5000 points"),
    ],
)
def test_what_no_answer_could_hold_is_refused(sliced: Live, asked: dict[str, str], says: str) -> None:
    answer = sliced.client.get("/api/v1/series", params=asked)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]
