"""``specscope diagnose`` and ``specscope compare`` against a real server: what they say and how they exit."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serverkit import otlp
from serverkit.command import run
from serverkit.live import Live, serving
from specscope import convention as c
from specscope_server.launches import meant
from specscope_server.spans_of_time import moment, seconds, span
from storekit import facts


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Two engines with requests: ``good`` accepts 7 of 10 drafts, ``bad`` skips fc and accepts 1 of 10."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('gate') / 'store.db'}") as live:
        dice = random.Random(5)
        for name, chance, fc in (("good", 0.7, 30), ("bad", 0.1, 0)):
            about = otlp.resource(
                **{
                    c.SERVICE_NAME.replace(".", "__"): name,
                    c.INSTANCE.replace(".", "__"): name,
                    c.PROCESS.replace(".", "__"): f"{name.encode().hex():0<32}",
                }
            )
            spans = [otlp.engine_span()]
            for number in range(60):
                steps = dice.randint(10, 30)
                accepted = sum(dice.random() < chance for _ in range(steps))
                totals: dict[str, Any] = {
                    c.REQUEST_UID: f"{name:0<4}".encode().hex() + f"{number:024x}",
                    c.GEN_AI_REQUEST_ID: f"{name}-{number}",
                    c.REQUEST_VERIFY_STEPS: steps,
                    c.REQUEST_DRAFTED_DEPTH: steps,
                    c.REQUEST_DRAFTED_NODES: steps,
                    c.REQUEST_ACCEPTED: accepted,
                    c.REQUEST_BONUS: steps,
                    c.REQUEST_COMMITTED: steps + accepted,
                }
                spans.append(otlp.request_span(number, **totals))
            assert live.export(otlp.traces(*spans, about=about)).status_code == 200
            told = otlp.heartbeat_metrics(expected=30, fc=fc)
            # Without trouble of the tracer's own, which makes what is certain a suspicion.
            sound = [one for one in told if one.name not in (c.METRIC_DROPPED, c.METRIC_HOOK_ERRORS)]
            beat = otlp.metrics(*sound, about=about)
            assert live.export(beat, "/v1/metrics").status_code == 200
        yield live


def test_a_fault_is_named_with_its_numbers(served: Live, tmp_path: Path) -> None:
    said = run("diagnose", "--url", served.url, "--engine", "bad", cwd=tmp_path)
    assert said.exit_code == 0, "without --fail-on it tells and fails nothing"
    assert "F04" in said.stdout
    assert "next check:" in said.stdout
    assert "good (" not in said.stdout


@pytest.mark.parametrize(
    ("engine", "level", "code"),
    [("bad", "certain", 1), ("bad", "observation", 1), ("good", "certain", 3)],
)
def test_exit_codes(served: Live, tmp_path: Path, engine: str, level: str, code: int) -> None:
    # No rollup was sent, so nothing can be said of the good one: that is not health.
    said = run("diagnose", "--url", served.url, "--engine", engine, "--fail-on", level, cwd=tmp_path)
    assert said.exit_code == code, said.output


def test_all_engines_as_json(served: Live, tmp_path: Path) -> None:
    said = run("diagnose", "--url", served.url, "--since", "10m", "--json", cwd=tmp_path)
    told = {one["name"]: one for one in json.loads(said.stdout)["engines"]}
    assert {name: one["state"] for name, one in told.items()}["bad"] == "faulty"
    assert told["good"]["findings"] == []


def test_a_request_has_its_verdict(served: Live, tmp_path: Path) -> None:
    said = run("diagnose", "--url", served.url, "--request", "bad-7", cwd=tmp_path)
    assert said.stdout.startswith("request bad-7: ")
    assert "drafted positions were accepted" in said.stdout
    assert "F04" in said.stdout
    several = run("diagnose", "--url", served.url, "--request", "bad-", cwd=tmp_path)
    assert (several.exit_code, "several requests" in several.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("diagnose", "--engine", "none"), "has no engine 'none'"),
        (("diagnose", "--request", "none"), "no request has the id"),
        (("diagnose", "--since", "soon"), "no length of time"),
        (("diagnose", "--since", "31d"), "--since 31d: an engine is judged by 10s to 30d"),
        (("compare", "good", "bad@2h..3h"), "ends before it starts"),
        (("compare", "good", "ugly"), "has no engine 'ugly'"),
        (("compare", "good@999999d", "bad"), "'999999d' ago is before the year 1"),
        (("compare", "good@1h..999999d", "bad"), "'999999d' ago is before the year 1"),
        (("compare", "good@1500-01-01", "bad"), "since: not between 1970 and 2200"),
        (("compare", "@1h", "bad"), "name an engine"),
        (("diagnose", "--workspace", "other", "--engine", "good"), "in workspace 'other'"),
    ],
)
def test_what_cannot_be_asked(served: Live, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = run(*arguments, "--url", served.url, cwd=tmp_path)
    assert (said.exit_code, words in said.stderr) == (2, True), said.output


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[", "ftp://127.0.0.1"])
def test_no_server(tmp_path: Path, url: str) -> None:
    said = run("diagnose", "--url", url, cwd=tmp_path)
    assert (said.exit_code, url in said.stderr) == (2, True), said.output


def test_nothing_told_is_not_health(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'empty.db'}") as live:
        said = run("diagnose", "--url", live.url, "--fail-on", "certain", cwd=tmp_path)
    assert (said.exit_code, "not health" in said.stdout) == (3, True)


def test_compare(served: Live, tmp_path: Path) -> None:
    worse = run("compare", "good", "bad", "--fail-below", "0.95", "--url", served.url, cwd=tmp_path)
    assert worse.exit_code == 1, worse.output
    assert "below" in worse.stdout
    better = run("compare", "bad", "good", "--fail-below", "0.95", "--url", served.url, cwd=tmp_path)
    assert better.exit_code == 0
    same = run("compare", "good", "good@30m", "--fail-below", "1", "--url", served.url, cwd=tmp_path)
    assert same.exit_code == 3
    old = run("compare", "good", "bad@2h..1h", "--fail-below", "0.5", "--url", served.url, cwd=tmp_path)
    assert (old.exit_code, "fewer than 10" in old.stdout) == (3, True)
    told = json.loads(run("compare", "good", "bad", "--json", "--url", served.url, cwd=tmp_path).stdout)
    assert (told["a"]["requests"], told["b"]["requests"]) == (60, 60)
    assert told["acceptance_length"]["a"]["value"] == pytest.approx(1.7, abs=0.1)


def launch(uid: str, started: float, heard: float, state: str = "healthy") -> dict[str, Any]:
    """A launch of the engine ``x``, from and until so many seconds ago."""
    return {
        "engine_uid": uid,
        "started": facts.ago(started).isoformat(),
        "last_received": facts.ago(heard).isoformat(),
        "state": state,
    }


def test_a_name_outlives_the_launch() -> None:
    old, new = launch("old", 9000, 1000, "ended"), launch("new", 900, 0)
    assert meant([old, new]) == [new]
    assert meant([old, new], facts.ago(3600)) == [new], "both were heard, one is"
    assert meant([old, new], facts.ago(500)) == [new]
    assert meant([old, new], facts.ago(5000), facts.ago(2000)) == [old]
    assert meant([old, new], facts.ago(5000), facts.ago(500)) == [old, new], "which one is not said"
    assert meant([new, launch("beside", 900, 0)]) == [new, launch("beside", 900, 0)]
    silent = launch("silent", 900, 500, "tracer silent")
    assert meant([silent, old]) == [silent], "the last of several that came one after the other"
    fell = launch("fell", 950, 500, "tracer silent")
    assert meant([fell, silent]) == [fell, silent]


def test_lengths_and_moments() -> None:
    now = facts.NOW
    assert [seconds(text) for text in ("90s", "30m", "2h", "1d")] == [90, 1800, 7200, 86_400]
    assert moment("2h", now) == facts.ago(7200)
    assert span("2026-03-01T10:00..2026-03-01T11:00", now)[1].hour == 11
    assert span("1h", now) == (facts.ago(3600), now)
    for wrong in ("", "h", "0h", "-1h", "1w", "1.5h"):
        with pytest.raises(ValueError, match="no length"):
            seconds(wrong)
