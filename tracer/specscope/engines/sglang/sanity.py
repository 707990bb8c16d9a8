"""What the numbers of a verify step must be, whatever the engine's version: else they mean something else.

A version that renames what we read is caught by the error that follows. One that keeps the name and changes
the meaning (counts the bonus among the accepted drafts, say) is caught here: a number that cannot be is an
error of the hook, which then disarms itself, and is never told.
"""

from __future__ import annotations

from specscope.records import VerifyBatch


def check(record: VerifyBatch) -> None:
    """Hold a step against what it is known to be. Takes about 1 µs for a batch of 64.

    Raises:
        ValueError: a number contradicts the others.
    """
    rows, accepted = len(record.uids), record.accepted
    if not len(accepted) == len(record.before) == len(record.after) == rows:
        raise ValueError(f"accepted drafts of {len(accepted)} requests in a batch of {rows}")
    if min(accepted) < 0 or max(accepted) > record.depth:
        wrong = min(accepted) if min(accepted) < 0 else max(accepted)
        raise ValueError(f"{wrong} accepted drafts where {record.depth} positions were drafted")
    # A stop may cut what was accepted, and a request that was over gets nothing: never more.
    got, most = sum(record.after) - sum(record.before), sum(accepted) + record.bonus * rows
    if got > most:
        raise ValueError(f"{got} tokens committed where {most} were accepted, the bonus included")
