"""Small tensors of a step on their way to the host, without ever waiting for the device.

What SGLang itself does not copy (drafts, trees, our own reductions) goes through pinned memory: an event on
the producing stream, a copy on a stream of ours, a second event that says the copy is there. At commit, one
engine step later under the overlap schedule, the second event is asked; where it has not come the values are
not known, and that is counted. Tensors in host memory are copied at once.
"""

from __future__ import annotations

import importlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from specscope.records import Block, Reals


@dataclass(frozen=True, slots=True)
class Ring:
    """How many copies can be under way, and how many bytes each: all the pinned memory there will be."""

    slots: int
    slot_bytes: int


STEPS: Final = Ring(16, 1 << 18)
"""For drafts, trees and confidence, 4 MiB: two steps of the overlap schedule with a few copies each; 256
requests of 16 nodes, tokens and tree, take 96 KiB."""
LOOKS: Final = Ring(8, 1 << 20)
"""For looks at hidden states, 8 MiB: one copy a pass, four passes late and those under way. A pass of 64
requests of 4 nodes with 3 slots and all 14 columns takes 43 KiB for the aux hidden states and some 40 KiB for
the rest of the draft path."""
LATE: Final = "late"
REFUSED: Final = "refused"
_SIZES: Final = {"torch.int64": 8, "torch.int32": 4, "torch.float32": 4}


@dataclass(slots=True)
class Part:
    """One tensor of a copy: its bytes, bytes a number and numbers a row."""

    data: bytes
    size: int
    width: int


class Copy:
    """Tensors of one step, on the host or on their way to it."""

    __slots__ = ("_arrived", "_owner", "_parts", "_shapes", "_slot")

    def __init__(self, parts: list[Part] | None) -> None:
        """Hold what is on the host already."""
        self._parts = parts
        self._owner: Copies | None = None
        self._slot: Any = None
        self._arrived: Any = None
        self._shapes: list[tuple[int, int, int]] = []

    @classmethod
    def under_way(cls, owner: Copies, slot: Any, arrived: Any, shapes: list[tuple[int, int, int]]) -> Copy:
        """Return a copy into ``slot``; ``shapes``: (bytes, bytes a number, numbers a row) of each tensor."""
        copy = cls(None)
        copy._owner, copy._slot, copy._arrived, copy._shapes = owner, slot, arrived, shapes
        return copy

    def ready(self) -> list[Part] | None:
        """Return the parts, ``None`` where the device has not handed them over. Never waits."""
        if self._owner is None:
            return self._parts
        if not self._arrived.query():
            self._owner.missed[LATE] += 1
            return None
        raw, at = self._slot.numpy(), 0
        parts: list[Part] = []
        for count, size, width in self._shapes:
            parts.append(Part(raw[at : at + count].tobytes(), size, width))
            at += count
        owner, self._parts = self._owner, parts
        owner.give_back(self, self.lose())
        return parts

    def lose(self) -> Any:
        """Let go of the slot and return it; what was not read by now is not known."""
        slot, self._slot, self._owner, self._arrived = self._slot, None, None, None
        return slot

    def arrived(self) -> bool:
        """Say whether the device is done with the slot. Never waits."""
        return self._arrived is None or bool(self._arrived.query())

    def blocks(self) -> list[Block]:
        """Return the tensors of whole numbers as a record has them, none where they are not there."""
        return [(part.data, part.size, part.width) for part in self.ready() or ()]

    def block(self) -> Block | None:
        """Return the only tensor, of whole numbers, as a record has it."""
        return next(iter(self.blocks()), None)

    def reals(self) -> Reals | None:
        """Return the only tensor, of real numbers, as a record has them."""
        parts = self.ready()
        return None if parts is None else (parts[0].data, parts[0].width)


class Copies:
    """Starts copies."""

    def __init__(self, missed: Counter[str], ring: Ring = STEPS) -> None:
        """Count in ``missed`` what could not be handed over.

        Takes no memory: the pinned slots of ``ring`` are made when the first device tensor comes.
        """
        self.missed = missed
        self._ring = ring
        self._free: list[Any] = []
        self._under_way: deque[Copy] = deque()
        self.stream: Any = None
        """The stream that copies, from the first device tensor on."""

    def start(self, tensors: Sequence[Any], widths: Sequence[int]) -> Copy | None:
        """Begin to copy; ``widths`` are the numbers a row of each. ``None``: it cannot be done here.

        Raises:
            KeyError: a tensor has a type that records do not know.
        """
        if all(tensor.device.type == "cpu" for tensor in tensors):
            return Copy(
                [
                    Part(tensor.numpy().tobytes(), _SIZES[str(tensor.dtype)], width)
                    for tensor, width in zip(tensors, widths, strict=True)
                ]
            )
        if any(tensor.device.type != "cuda" for tensor in tensors):
            return None
        return self._device(tensors, widths)

    def give_back(self, copy: Copy, slot: Any) -> None:
        """Take back a slot whose bytes were read."""
        self._under_way.remove(copy)
        self._free.append(slot)

    def _device(self, tensors: Sequence[Any], widths: Sequence[int]) -> Copy | None:
        torch: Any = importlib.import_module("torch")
        cuda = torch.cuda
        if cuda.is_current_stream_capturing():
            return None
        shapes = [
            (tensor.numel() * tensor.element_size(), _SIZES[str(tensor.dtype)], width)
            for tensor, width in zip(tensors, widths, strict=True)
        ]
        slot = self._slot(torch) if sum(count for count, _, _ in shapes) <= self._ring.slot_bytes else None
        if slot is None:
            self.missed[REFUSED] += 1
            return None
        flat = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
        produced, arrived = cuda.Event(), cuda.Event()
        produced.record()
        at = 0
        with cuda.stream(self.stream):
            self.stream.wait_event(produced)
            for tensor in flat:
                slot[at : at + tensor.numel()].copy_(tensor, non_blocking=True)
                # The allocator must not hand the memory on before our stream has read it.
                tensor.record_stream(self.stream)
                at += tensor.numel()
            arrived.record(self.stream)
        copy = Copy.under_way(self, slot, arrived, shapes)
        self._under_way.append(copy)
        return copy

    def _slot(self, torch: Any) -> Any:
        if self.stream is None:
            # torch hands streams out in turn from a small pool for each priority: of the engine's own, which
            # have another one, none is ours too.
            self.stream = torch.cuda.Stream(priority=-1)
            # One piece: pinning memory may wait for the device.
            size = (self._ring.slots, self._ring.slot_bytes)
            self._free.extend(torch.empty(size, dtype=torch.uint8, pin_memory=True).unbind())
        if self._free:
            return self._free.pop()
        # The oldest is several steps old: its step was committed without it, or never will be.
        if self._under_way and self._under_way[0].arrived():
            return self._under_way.popleft().lose()
        return None
