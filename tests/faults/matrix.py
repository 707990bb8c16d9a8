"""The confusion matrix of a run of the zoo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zoo import Judgement, is_control


def matrix(judgements: Sequence[Judgement]) -> list[str]:
    """Return the confusion matrix as Markdown: rows are what was injected, columns what was named on top."""
    told = Counter((one.fault_class or "control", one.named or "none") for one in judgements)
    rows = sorted({row for row, _ in told}, key=lambda name: (name == "control", name))
    columns = sorted({column for _, column in told}, key=lambda name: (name == "none", name))
    lines = ["| injected | " + " | ".join(columns) + " | right |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        of_row = [told[row, column] for column in columns]
        right = told[row, "none" if row == "control" else row]
        cells = " | ".join(str(count) if count else "" for count in of_row)
        lines.append(f"| {row} | {cells} | {right} of {sum(of_row)} |")
    controls = [one for one in judgements if is_control(one)]
    served = sum(one.requests for one in controls)
    accused = sum(one.requests for one in controls if not one.right)
    lines.append("")
    lines.append(f"{served} requests of controls, {accused} of them in windows in which a fault was named.")
    return lines
