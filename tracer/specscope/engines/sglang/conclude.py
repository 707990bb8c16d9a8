"""What a pass must have crossed where the call itself cannot be seen: concluded from shapes and settings.

Under a CUDA graph the engine's Python does not run, and a hook may have failed. Nothing is concluded that
the shapes do not say.
"""

from __future__ import annotations

from specscope import convention as c
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.passes import Pass


def capture(one: Pass, loaded: Loaded, *, seen: bool) -> int | None:
    """Return how many aux hidden states the target handed over, ``None`` where that is not known.

    ``seen``: a call of the packing would have been seen, so that none means that nothing was captured.
    """
    if one.packed is not None:
        return one.packed
    if seen or not loaded.target_captures:
        return 0
    if one.extend is None or not loaded.target_hidden:
        return None
    one.cross((c.AUX_CAPTURE, c.NO_SOURCE, c.DERIVED))
    return one.extend.fed_width // loaded.target_hidden


def fc_runs(one: Pass, loaded: Loaded, *, seen: bool) -> int | None:
    """Return how often fc ran in the draft extend of a pass, ``None`` where that was not seen.

    Where it was not, its crossing is concluded by the test that decides it: fc is skipped when the fed
    width equals the embedding's (``llama_eagle3.py:238``). A replayed graph whose buffer has another width
    does not even receive the states (``eagle_draft_extend_cuda_graph_runner.py:595-605``). The fc of other
    drafts joins embedding and state and has no such test: where the forward ran, it ran.
    """
    extend, fc_in = one.extend, loaded.fc_in
    if extend is None or not extend.done or loaded.fc is None:
        return None
    if seen and not extend.graph:
        return extend.fc_ran
    reaches = extend.buffer_width in (None, extend.fed_width)
    runs = not loaded.eagle3 or (extend.fed_width == fc_in and fc_in != loaded.fc_out)
    if reaches and runs:
        # Once for each forward, of which some may have been seen.
        one.cross((c.DRAFT_FC, c.TARGET_FED, c.DERIVED), max(0, max(1, extend.forwards) - extend.fc_ran))
    return None
