"""What the receiver counts: every export once, by known labels, and the sum over workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serverkit import otlp
from serverkit.live import Live, serving
from specscope import convention as c
from specscope_server.api.alert_metrics import AlertMetrics
from specscope_server.housekeeper import deleted_rows
from specscope_server.ingest import reasons, scrape, workers
from specscope_server.ingest.notes import MOST, Notes
from specscope_server.ingest.refusal import RPC_CODES
from specscope_server.ingest.stats import IngestStats
from specscope_server.ingest.values import Tally
from specscope_server.store import open_store
from storekit import facts
from storekit.everything import Workspace, fill

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def live(sqlite_url: str) -> Iterator[Live]:
    with serving(sqlite_url) as found:
        yield found


def samples(live: Live) -> Samples:
    text = live.client.get("/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"specscope_ingest_{name}", frozenset(labels.items())))


def test_what_is_sent_is_counted_by_what_became_of_it(live: Live) -> None:
    before = samples(live)
    assert value(before, "accepted_total", signal="traces") is None, "nothing sent: not 0 but absent"
    assert value(before, "last_export_timestamp_seconds") == 0
    bad = otlp.request_span(1, **{c.REQUEST_VERIFY_STEPS: -1})
    unnamed = otlp.steps_span(2, **{c.REQUEST_UID: None})
    torn = otlp.rollup_span(3, **{c.ROLLUP_ROWS: b"torn"})
    answer = live.export(otlp.traces(otlp.request_span(0), otlp.steps_span(0), bad, unnamed, torn))
    assert answer.status_code == 200
    assert live.export(otlp.traces(otlp.request_span(0), scope="another")).status_code == 200
    assert live.export(otlp.traces(bad)).status_code == 400
    assert live.client.post("/v1/traces", content=b"?").status_code == 415
    found = samples(live)
    assert value(found, "accepted_total", signal="traces") == 2
    assert value(found, "foreign_total", signal="traces") == 1
    rejected = {
        dict(labels)["reason"]: count
        for (name, labels), count in found.items()
        if name == "specscope_ingest_rejected_total"
    }
    assert rejected == {"range": 2, "missing": 1, "payload": 1}
    assert value(found, "refused_total", protocol="http", status="400") == 1
    assert value(found, "refused_total", protocol="http", status="415") == 1
    assert value(found, "exports_total", protocol="http", signal="traces") == 2
    assert (value(found, "bytes_total", protocol="http", signal="traces") or 0) > 1000
    assert value(found, "commit_seconds_count") == 2
    assert value(found, "lag_seconds_count") == 1, "another tool's spans have no lag of ours"
    assert value(found, "waiting_exports") == value(found, "waiting_bytes") == 0


def test_an_engine_whose_clock_is_ahead_has_no_lag(live: Live) -> None:
    ahead = otlp.now_ns() + 3600 * facts.SECOND
    assert live.export(otlp.metrics(*otlp.heartbeat_metrics(ahead)), "/v1/metrics").status_code == 200
    found = samples(live)
    assert (value(found, "ahead_total"), value(found, "lag_seconds_count")) == (1, 0)


def test_a_scraper_gets_the_format_that_it_asks_for(live: Live) -> None:
    plain = live.client.get("/metrics", params={"name[]": "x"})
    assert plain.headers["content-type"].startswith("text/plain; version=")
    open_metrics = live.client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.rstrip().endswith("# EOF")


def test_every_metric_label_and_reason_is_documented(sqlite_url: str) -> None:
    stats = IngestStats()
    store = open_store(sqlite_url)
    fill(store, Workspace("default", "oakwood", 48_170_976), datetime.now(UTC))
    found = list(AlertMetrics(store).collect())
    store.close()
    deleted_rows(stats.registry)
    documented = dict(re.findall(r"^\| `(specscope_\w+)` \| \w+ \| (.*?) \|", REFERENCE, re.MULTILINE))
    named: dict[str, set[str]] = {}
    for metric in [*stats.registry.collect(), *found]:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        named[name] = {label for sample in metric.samples for label in sample.labels} - {"le"}
    assert set(documented) == set(named)
    stats.add("traces", rejecting("x: y is missing"), size=1)
    stats.refuse(503, "full")
    for metric in [*stats.registry.collect(), *found]:
        for sample in metric.samples:
            name = metric.name + ("_total" if metric.type == "counter" else "")
            for label in set(sample.labels) - {"le"}:
                assert f"`{label}`" in documented[name], f"{name} has the label {label}"
    for reason, meaning in reasons.MEANINGS.items():
        assert f"| `{reason}` | {meaning} |" in REFERENCE


def rejecting(*given: str) -> Tally:
    tally = Tally(accepted=1)
    for reason in given:
        tally.reject(reason)
    return tally


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("resource: specscope.process is missing", "resource"),
        ("spec_decode.request: spec_decode.request.uid is missing", "missing"),
        ("spec_decode.request: spec_decode.request.uid is not 32 lower-case hex digits", "form"),
        ("spec_decode.steps: spec_decode.chunk.steps: the header is cut off", "payload"),
        ("spec_decode.rollup: spec_decode.rollup.rows has a count that is too large", "payload"),
        ("spec_decode.rollup: spec_decode.rollup.bucket is 11, not a multiple of 10", "range"),
        ("spec_decode.request: the span ends before it starts", "range"),
        ("x is a string, not a int", "form"),
        ("gen_ai.request.id has 999 characters, at most 128 are allowed", "too_large"),
        ("spec_decode.rollup: older than what is kept", "too_old"),
        ("more than 4096 series in one heartbeat", "too_large"),
        ("y is not cumulative", "form"),
        ("spec_decode.rollup: not a packed column blob: it does not start with SPSC", "payload"),
        ("spec_decode.steps: body of 9 bytes is over the limit of 8", "payload"),
        ("something new", "other"),
    ],
)
def test_reasons_fall_into_few_classes(reason: str, wanted: str) -> None:
    assert reasons.class_of(reason) == wanted
    assert wanted in reasons.MEANINGS


def test_labels_stay_few_whatever_is_refused() -> None:
    stats = IngestStats()
    for status in range(300, 900):
        stats.refuse(status, f"for reason {status}")
    stats.refuse("RESOURCE_EXHAUSTED", "too much waits", protocol="grpc")
    told = scrape.read(stats)
    assert set(told.refused) <= {("http", s) for s in (*map(str, RPC_CODES), "other")} | {
        ("grpc", "RESOURCE_EXHAUSTED")
    }
    assert sum(told.refused.values()) == 601
    assert len(told.notes) == MOST
    assert told.notes[0].reason == "refused with RESOURCE_EXHAUSTED: too much waits"


def test_a_reason_given_again_is_one_note() -> None:
    notes = Notes()
    for number in range(5):
        notes.add("full", facts.ago(5 - number))
    notes.add("other", facts.NOW)
    assert [(note.reason, note.times) for note in notes.recent()] == [("other", 1), ("full", 5)]
    assert notes.recent()[1].last == facts.ago(1)


WORKER = """
import sys
from specscope_server.ingest.stats import IngestStats
from specscope_server.ingest.values import Tally
stats = IngestStats()
stats.add("traces", Tally(accepted=int(sys.argv[1])), size=10)
stats.refuse(503, f"no disk in worker {sys.argv[1]}")
stats.refuse(503, "no disk")
stats.waiting(3, 300)
if sys.argv[2] == "stay":
    print("ready", flush=True)
    sys.stdin.read()
"""
READER = """
import json
from dataclasses import asdict
from specscope_server.ingest import scrape
from specscope_server.ingest.stats import IngestStats
told = scrape.read(IngestStats())
print(json.dumps([told.accepted, sorted(told.refused.items()), told.waiting, told.started.timestamp(),
                  {n.reason: n.times for n in told.notes}]))
"""


def test_numbers_of_several_workers_add_up_and_the_dead_wait_for_nothing() -> None:
    def run(code: str, *given: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with workers.shared_counters() as directory:
        assert os.environ[workers.DIRECTORY] == str(directory)
        staying = run(WORKER, "2", "stay")
        assert staying.stdout is not None
        assert staying.stdout.readline() == "ready\n"
        gone = run(WORKER, "5", "go")
        gone.communicate(timeout=60)
        out, _ = run(READER).communicate(timeout=60)
        staying.communicate(timeout=60)
        assert (staying.returncode, gone.returncode) == (0, 0)
    accepted, refused, waiting, started, noted = json.loads(out)
    assert accepted == {"traces": 7}
    assert refused == [[["http", "503"], 4]]
    assert waiting == 3, "what an ended worker had waiting is not waiting any more"
    assert started > 1e9
    assert noted["refused with 503: no disk"] == 2
    assert not directory.exists()
    assert workers.DIRECTORY not in os.environ


def test_a_directory_that_others_count_in_is_left_alone(tmp_path: Path) -> None:
    """Engines are started with the variable set: their numbers are not ours, nor ours theirs."""
    others = "from prometheus_client import Counter; Counter('sglang_steps', 'x').inc(5)"
    named = {**os.environ, workers.DIRECTORY: str(tmp_path)}
    subprocess.run([sys.executable, "-c", others], env=named, check=True, timeout=60)
    before = sorted(tmp_path.iterdir())
    assert before
    for directory in (tmp_path, tmp_path / "missing"):
        environment = {**os.environ, workers.DIRECTORY: str(directory)}
        code = (
            "from specscope_server.ingest import scrape, stats; "
            "print(scrape.exposition(stats.IngestStats(), '')[0].decode())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "specscope_server_info" in done.stdout
        assert "sglang_steps" not in done.stdout
        assert sorted(tmp_path.iterdir()) == before
