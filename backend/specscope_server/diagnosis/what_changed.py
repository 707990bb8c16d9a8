"""What else changed when acceptance did: events of the engine, and the mix of its traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from specscope_server.diagnosis.engine_evidence import Event, Moment
from specscope_server.diagnosis.model import Evidence

BEFORE_S: Final = 180
AFTER_S: Final = 60
"""An event counts from three minutes before the first changed minute to its end: a request that began before
an update of weights ends after it, and the clocks of minutes are those of the engine."""


@dataclass(frozen=True, slots=True)
class MixShift:
    """How far the shares of traffic moved in the dimension that moved most: ``share`` of it is elsewhere."""

    dimension: str
    share: float
    value: str
    before: float
    after: float

    @property
    def words(self) -> str:
        """Return it as half a sentence."""
        return f"{self.dimension} {self.value} from {self.before:.0%} of the steps to {self.after:.0%}"


def events_near(evidence: Evidence, at: float) -> list[Event]:
    """Return what happened to the engine around the minute that starts at ``at``, but for mere starts."""
    return [
        event for event in evidence.events if event.changed and at - BEFORE_S <= event.at <= at + 60 + AFTER_S
    ]


def events_text(events: Sequence[Event]) -> str:
    """Say in words what events changed, and when."""
    return "; ".join(f"{_clock(event.at)} {event.name}: {', '.join(event.changed)}" for event in events)


def mix_shift(before: Sequence[Moment], after: Sequence[Moment]) -> MixShift | None:
    """Return how the traffic's mix moved between two stretches; ``None``: it is not known of both."""
    shares = [_shares(before), _shares(after)]
    found: MixShift | None = None
    for dimension in sorted(shares[0].keys() & shares[1].keys()):
        first, second = shares[0][dimension], shares[1][dimension]
        moved = {value: second.get(value, 0) - first.get(value, 0) for value in first.keys() | second.keys()}
        # Half of all moves: the total variation distance of the two mixes.
        share = sum(abs(move) for move in moved.values()) / 2
        if found is None or share > found.share:
            value = max(sorted(moved), key=lambda name: abs(moved[name]))
            found = MixShift(dimension, share, value, first.get(value, 0.0), second.get(value, 0.0))
    return found


def explains(mix: MixShift | None, change: float, depth: float) -> bool:
    """Say whether a moved mix could make acceptance change so much by itself.

    Steps of one kind accept between 0 and ``depth`` drafts, so moving a share of the steps to another kind
    moves the mean by at most that share of ``depth``.
    """
    return mix is not None and mix.share * depth >= change


def when(at: float) -> str:
    """Return a time in words, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _shares(moments: Sequence[Moment]) -> dict[str, dict[str, float]]:
    steps: dict[str, dict[str, int]] = {}
    for moment in moments:
        _add(steps, moment.mix)
    return {
        dimension: {value: n / sum(values.values()) for value, n in values.items()}
        for dimension, values in steps.items()
        if sum(values.values()) > 0
    }


def _add(steps: dict[str, dict[str, int]], mix: Mapping[str, int]) -> None:
    for name, count in mix.items():
        dimension, _, value = name.partition("=")
        values = steps.setdefault(dimension, {})
        values[value] = values.get(value, 0) + count
