"""The signs of fingerprints are what the reference says, for anyone who computes them again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from specscope import static_stats, tensorstats
from specscope.hidden import PROJECTIONS
from specscope.signs import SEED, signs

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "fingerprint.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d) \| `0x([0-9a-f]{8})` \| ([+−] (?:[+−] ){6}[+−]) \|$", REFERENCE, re.M)
WORD = 0xFFFFFFFF


def hashed(column: int, seed: int) -> int:
    """The hash in whole numbers of any size, as the reference writes it."""
    h = (column * 0x9E3779B1 + seed) & WORD
    h = (h ^ h >> 16) * 0x7FEB352D & WORD
    h = (h ^ h >> 15) * 0x846CA68B & WORD
    return h ^ h >> 16


def test_the_worked_example_is_what_the_code_does() -> None:
    assert [int(column) for column, _, _ in ROWS] == list(range(8))
    assert [int(word, 16) for _, word, _ in ROWS] == [hashed(column, SEED) for column in range(8)]
    told = np.array([[1 if sign == "+" else -1 for sign in row.split()] for _, _, row in ROWS]).T
    assert np.array_equal(signs(8), told)
    sums = signs(8).astype(int) @ np.arange(1, 9)
    text = REFERENCE.replace("−", "-")
    assert f"are {', '.join(str(n) for n in sums)};" in text
    assert f"p = ({', '.join(f'{n:.4f}'.rstrip('0').rstrip('.') for n in sums / np.sqrt(8))})" in text


@pytest.mark.parametrize("seed", [0, 1, SEED, WORD])
def test_signs_are_the_bits_of_the_hash(seed: int) -> None:
    found = signs(300, seed)
    assert found.dtype == np.int8
    expected = [
        [-1 if hashed(column, seed) >> j & 1 else 1 for column in range(300)] for j in range(PROJECTIONS)
    ]
    assert found.tolist() == expected


def test_signs_never_change() -> None:
    digest = hashlib.sha256(signs(7168).tobytes()).hexdigest()
    assert f"`{digest}`" in REFERENCE
    assert f"`0x{SEED:08x}`" in REFERENCE
    # A wider slot begins like a narrower one.
    assert np.array_equal(signs(7168)[:, :128], signs(128))


def test_signs_are_as_good_as_random() -> None:
    each = signs(7168).astype(int)
    # Six deviations of a sum of so many random signs; a hash of few bits would repeat itself.
    assert np.abs(each @ each.T - 7168 * np.eye(PROJECTIONS, dtype=int)).max() < 6 * np.sqrt(7168)
    assert np.abs(each.sum(axis=1)).max() < 6 * np.sqrt(7168)
    assert np.abs((each[:, 1:] * each[:, :-1]).sum(axis=1)).max() < 6 * np.sqrt(7168)


def test_a_seed_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"seed 4294967296 is not in 0"):
        signs(8, 1 << 32)


def test_columns_are_documented_in_their_order() -> None:
    table = REFERENCE.split("## Fingerprint")[0]
    told = re.findall(r"^\| `(\w+)` \| ", table, re.M)
    assert tuple(told) == tensorstats.COLUMNS
    assert ("rows", *tensorstats.COLUMNS) == tensorstats.SUMMED
    assert (tensorstats.columns(False), tensorstats.columns(True)) == (6, 6 + PROJECTIONS)
    assert static_stats.BYTES == 32 << 20
