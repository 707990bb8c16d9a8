"""Minutes that were read before are the same as if all were read: also late news of an old one."""

from __future__ import annotations

import random
from datetime import timedelta

from specscope_server.store.opening import open_store
from specscope_server.store.port import Store
from storekit import facts


def test_minutes_that_are_kept_are_those_that_are_stored(store: Store, store_url: str) -> None:
    dice = random.Random(7)
    now = facts.NOW
    for seq in range(1, 9):
        # Of the same minutes again and again, and of some that were not told of before.
        late = facts.increment(seq, dice.choice((20, 80, 200, 200, 4000)), steps=seq, accepted=1, bonus=2)
        store.write([facts.batch(late)], now)
        now += timedelta(seconds=dice.choice((1, 2, 70, 400)))
        kept = store.evidence("default", facts.ENGINE, now, 300)
        anew = open_store(store_url)
        read = anew.evidence("default", facts.ENGINE, now, 300)
        anew.close()
        assert kept is not None
        assert read is not None
        assert kept.history == read.history
        assert sum(moment.counts.steps for moment in kept.history) == sum(range(seq + 1))
        assert all(moment.positions and moment.mix for moment in kept.history)


def test_minutes_leave_the_history_as_time_passes(store: Store) -> None:
    store.write([facts.batch(facts.increment(1, 20))], facts.NOW)
    for hours, minutes in ((0, 1), (1, 1), (3, 0)):
        known = store.evidence("default", facts.ENGINE, facts.NOW + timedelta(hours=hours), 300)
        assert known is not None
        assert len(known.history) == minutes
