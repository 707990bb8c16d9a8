"""A version that changes the meaning of a number must not have it told as the old one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope import convention as c
from specscope.engines.sglang import sanity
from specscope.records import VerifyBatch

GOOD = VerifyBatch(
    t_ns=1,
    step=1,
    mode=c.EAGER,
    uids=("a", "b"),
    prompt=(4, 5),
    before=[1, 7],
    after=[6, 8],
    accepted=[4, 0],
    bonus=1,
    nodes=5,
    depth=4,
    chain=True,
    expected={},
    crossed={},
)


def test_a_step_as_we_know_it_passes() -> None:
    sanity.check(GOOD)
    sanity.check(replace(GOOD, after=[3, 8]))  # a stop cut it
    sanity.check(replace(GOOD, after=[1, 7], over=[True, True]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"accepted": [5, 1]}, "5 accepted drafts where 4 positions"),  # the bonus is counted too
        ({"accepted": [-1, 0]}, "-1 accepted drafts"),
        ({"accepted": [4]}, "of 1 requests in a batch of 2"),
        ({"accepted": [3, 0]}, "6 tokens committed where 5 were accepted"),
        ({"bonus": 0}, "6 tokens committed where 4 were accepted"),
    ],
)
def test_numbers_that_cannot_be_are_an_error(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sanity.check(replace(GOOD, **changed))
