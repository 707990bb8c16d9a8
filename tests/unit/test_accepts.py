"""How many drafts a step accepted where the engine's count of them and its tokens disagree."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from specscope.engines.sglang.commit import accepts


@dataclass(frozen=True)
class Device:
    type: str


@dataclass(frozen=True)
class Lengths:
    """What is read of a tensor."""

    told: tuple[int, ...]
    device: Device

    def tolist(self) -> list[int]:
        assert self.device.type == "cpu", "reading it would wait for the device"
        return list(self.told)


@dataclass(frozen=True)
class Result:
    num_correct_drafts_per_req_cpu: list[int]
    num_non_draft_tokens_per_req: int = 1
    accept_lens: Lengths | None = None


def lengths(*told: int, where: str = "cpu") -> Lengths:
    return Lengths(told, Device(where))


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (Result([4, 0], 1, lengths(5, 1)), ([4, 0], 1)),
        (Result([3, 0], 2, lengths(5, 2)), ([3, 0], 2)),
        (Result([5, 1], 0, lengths(5, 1)), ([4, 0], 1)),
        (Result([5, 1], 1, lengths(5, 1)), ([4, 0], 1)),
        (Result([4, 0]), ([4, 0], 1)),
        (Result([4, 0], 1, lengths(5, 1, where="cuda")), ([4, 0], 1)),
    ],
    ids=[
        "sound",
        "two beside the drafts",
        "the bonus is a draft",
        "one too many",
        "no lengths",
        "not on the host",
    ],
)
def test_what_was_committed_tells_what_was_accepted(result: Result, told: tuple[list[int], int]) -> None:
    assert accepts(result) == told
