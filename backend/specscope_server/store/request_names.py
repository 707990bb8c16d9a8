"""What other tools may call a request of ours, and by which of these names a span was joined to it."""

from __future__ import annotations

import re
from typing import Final

ENDS_SO: Final = "\u2026"
"""Before a request id of which only the end is known. No id that an engine makes begins with it."""

BY_TRACE: Final = "trace id"
BY_REQUEST: Final = "request id"
BY_RESPONSE: Final = "response id"
BY_END: Final = "end of the request id"
BY_CHILD: Final = "request id of all its samples"
RULES: Final = (BY_TRACE, BY_REQUEST, BY_RESPONSE, BY_END, BY_CHILD)
"""How a span was joined, the surest first."""

VLLM: Final = "vllm"
_RANDOM: Final = re.compile(r"-[0-9a-f]{8}\Z")
_SAMPLE: Final = re.compile(r"\A\d+_")


def request_names(rid: str, engine_name: str) -> dict[str, str]:
    """Return the request ids that spans of this request may carry, each with the rule that it stands for.

    vLLM (read in 0.32: v1/engine/input_processor.py, parallel_sampling.py) adds eight random hex digits to
    the id that its spans have, and puts the number of the sample before it where a caller asked for several:
    ``1_cmpl-x-0-95adb195`` is told as ``cmpl-x-0``. An id may begin like that by itself, so
    :data:`BY_CHILD` holds only for a span that tells of more than one sample. SGLang's spans may have
    only what follows the last underscore.
    """
    if not rid:
        return {}
    found = {ENDS_SO + rid.rpartition("_")[2]: BY_END, rid: BY_REQUEST}
    if engine_name == VLLM:
        for inner in (rid, _RANDOM.sub("", rid)):
            found.setdefault(inner, BY_REQUEST)
            found.setdefault(_SAMPLE.sub("", inner), BY_CHILD)
    return {name: rule for name, rule in found.items() if name}


def response_names(rid: str, response_id: str) -> tuple[str, ...]:
    """Return the ids that the answer may have: the one told, or the rid, as on SGLang and vLLM's chat."""
    return tuple(name for name in dict.fromkeys((response_id, rid)) if name)
