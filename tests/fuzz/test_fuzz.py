"""Hostile input in short: all kept reproducers and some fresh cases; ``make fuzz`` runs a million."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from storekit.dump import execute

from fuzz import scaling, seeds
from fuzz.case import Case, parse
from fuzz.targets import TARGETS, Export, Fault, Target

FRESH = {"packed": 1500, "read": 150, "export": 150}
"""Cases by target: some seconds together."""


@pytest.fixture(scope="module", params=sorted(TARGETS))
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, Target]]:
    made = TARGETS[request.param]()
    yield request.param, made
    made.close()


def test_kept_reproducers(target: tuple[str, Target]) -> None:
    name, found = target
    for path in seeds.kept(name):
        try:
            found.run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.name}: {error}") from error


def test_seeds_are_understood_and_fresh_cases_do_no_harm(target: tuple[str, Target]) -> None:
    name, found = target
    for seed in found.seeds():
        found.run(seed)
    assert set(found.outcomes) & {"200", "read", "steps"}
    dice, data = random.Random(11), b""
    for number in range(FRESH[name]):
        data = found.mutate(data, dice, None)
        try:
            found.run(data)
        except Exception as error:
            raise AssertionError(f"case {number} of {name}: {error!r}: {data!r}") from error


def test_a_case_is_read_as_it_was_written() -> None:
    case = Case(b"\0\n{}", "/v1/logs?x", "PUT", (("a", "b"), ("a", "c")))
    assert parse(case.to_bytes()) == case
    assert parse(b"no such line").body == b"no such line"


def test_a_fault_is_seen() -> None:
    found = Export()
    seed = found.seeds()[0]
    found.run(seed)
    assert found.world is not None
    execute(found.world.url, text("DROP TABLE process"))
    with pytest.raises(Fault, match="answered with 5"):
        found.run(seed)
    found.close()


@pytest.mark.parametrize("name", sorted(scaling.FAMILIES))
def test_growing_families_grow(name: str) -> None:
    """Each is larger when it has more: one that does not grow would measure nothing."""
    small, large = (scaling.FAMILIES[name](n).to_bytes() for n in (1, 40))
    assert len(small) < len(large)


def test_small_bombs_are_only_opened_so_far() -> None:
    """Forty blobs of a kilobyte that unpack into four megabytes each: those within the share are read."""
    export = Export()
    export.run(scaling.FAMILIES["request spans with long lists"](2).to_bytes())
    assert export.world is not None
    answer = export.world.ask(scaling.FAMILIES["request spans with long lists"](40))
    assert answer.status == 400
    assert b"packed columns of more than 128 MiB in one export" in answer.body
    export.close()
