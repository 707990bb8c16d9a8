"""The reference pages name everything that the code does, and nothing that it does not."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from specscope import (
    chunks,
    cli,
    columns,
    convention,
    hidden,
    hidden_rollup,
    pump,
    records,
    rollup,
    settings,
)
from specscope.exporter import hidden_rows, pipeline, sender, tokens

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
WIRE = (REFERENCE / "wire.md").read_text(encoding="utf-8")
SETTINGS = (REFERENCE / "settings.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", WIRE))

NAMES = {
    value
    for name, value in vars(convention).items()
    if name.isupper() and isinstance(value, str) and value
}  # fmt: skip
COLUMNS = {
    *chunks.STEP_COLUMNS, *chunks.EXTEND_COLUMNS, *chunks.BOUNDARY_COLUMNS, *chunks.RANK_COLUMNS,
    *rollup.ROLLUP_COLUMNS, *hidden.HIDDEN_COLUMNS, *hidden_rollup.COLUMNS,
}  # fmt: skip
REASONS = {
    pump.QUEUE_FULL, pump.EXPORTER_LOST, pump.EXPORTER_DEAD, pump.NOT_PLAIN, pump.RANK_STEPS_FULL,
    pipeline.BROKEN, pipeline.EVICTED, pipeline.HIDDEN_KEYS, pipeline.ODD_TREE,
    sender.BUFFER_FULL, sender.REJECTED, sender.RECEIVER_ERROR,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_of_the_convention_is_documented(name: str) -> None:
    assert name in QUOTED


def test_the_convention_was_read() -> None:
    assert {"spec_decode.request", "spec_decode.chunk.seq", "target.verify", "eager"} <= NAMES
    assert len(NAMES) > 90


@pytest.mark.parametrize("name", sorted(COLUMNS | REASONS | {*rollup.DIMENSIONS, *hidden.PLACES}))
def test_every_column_reason_and_dimension_is_documented(name: str) -> None:
    assert name in QUOTED


def test_no_name_is_documented_that_does_not_exist() -> None:
    ours = {text for text in QUOTED if re.fullmatch(r"(spec_decode|specscope)\.[a-z_.]+", text)}
    assert ours - NAMES == set()


def test_limits_are_documented_as_they_are() -> None:
    assert f"at most {chunks.MAX_STEPS} verify steps" in WIRE
    assert f"one row a verify step, at most {chunks.MAX_RANK_STEPS}" in WIRE
    assert f"its last {tokens.WINDOW}" in WIRE
    assert f"whole prompt of at most {chunks.MAX_PROMPT:,} tokens" in WIRE
    assert f"never has more than {hidden.MAX_ROWS} rows" in WIRE
    assert f"more than {pipeline.HIDDEN_RAW >> 10} KiB before compression" in WIRE
    assert f"({hidden_rows.ROW_RAW} bytes a row and {hidden_rows.FINGERPRINT_RAW} a fingerprint" in WIRE
    assert pipeline.HIDDEN_RAW // hidden_rows.ROW_RAW < hidden.MAX_ROWS
    assert f"of the first {hidden.MAX_FINGERPRINTS} rows" in WIRE
    assert f"round({hidden.PER_OCTAVE} log2 rms); \N{MINUS SIGN}{-hidden.NO_LEVEL}:" in WIRE
    assert f"{hidden.PROJECTIONS} projections each, in 1/{hidden.PER_RMS} of the row's rms" in WIRE
    assert f"`spec_decode.rollup.hidden_states`, at most {hidden_rollup.MAX_KEYS} rows" in WIRE
    assert f"of more than {hidden_rollup.MAX_KEYS} kinds in a second" in WIRE
    assert f"1/{1 << hidden_rows.MEAN_BITS} of the power of two" in WIRE
    assert (
        f"to {hidden_rows.DEVIATION_BITS} bits of mantissa, the largest value to {hidden_rows.PEAK_BITS}"
        in WIRE
    )
    assert f"unix seconds, a multiple of {rollup.BUCKET_S}" in WIRE
    assert f"Wire, version {convention.WIRE_VERSION}" in WIRE
    assert f"`SPSC`, version ({columns.VERSION})" in WIRE


def test_configuration_keys_are_those_of_the_record() -> None:
    assert records.EngineFacts.__doc__ is not None
    keys = set(re.findall(r"``(\w+)``", records.EngineFacts.__doc__)) - {"config"}
    assert keys
    assert keys <= QUOTED


VARIABLES = {*settings.ALL_VARIABLES, settings.SDK_DISABLED}
ROWS = {
    row[1]: row
    for line in SETTINGS.splitlines()
    if (row := [cell.strip().strip("`") for cell in line.split("|")]) and len(row) == 5
}


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_every_variable_is_documented_on_the_page_and_beside_its_constant(variable: str) -> None:
    assert ROWS[variable][3]
    assert cli.meanings()[variable]


def test_no_variable_is_documented_that_does_not_exist() -> None:
    documented = set(re.findall(r"`((?:SPECSCOPE|OTEL)_[A-Z_]+)`", SETTINGS))
    assert documented == VARIABLES
    constants = {v for v in vars(settings).values() if isinstance(v, str) and v.startswith("SPECSCOPE_")}
    assert constants == set(settings.ALL_VARIABLES)


def test_defaults_are_documented_as_they_are() -> None:
    default = settings.Settings()
    by_field = {
        settings.DETAIL: default.detail,
        settings.WORKSPACE: default.workspace,
        settings.ENVIRONMENT: default.environment,
        settings.QUEUE: str(default.queue),
        settings.BUFFER_MB: str(default.buffer_mb),
    }
    assert {variable: ROWS[variable][2] for variable in by_field} == by_field
    assert len(fields(default)) == len(VARIABLES)  # each but the two switches has a field; off, ignored


@pytest.mark.parametrize("level", convention.DETAIL_LEVELS)
def test_every_detail_level_is_documented(level: str) -> None:
    assert f"| `{level}` |" in SETTINGS
