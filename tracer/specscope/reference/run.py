"""Runs a target over token ids by plain transformers and hands out its hidden states, chunk by chunk.

transformers' ``hidden_states[i]`` is the input of decoder layer i (the output of layer i - 1), which is what
SGLang captures at the entry of layer i: hidden state plus residual.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from specscope.reference import Problem
from specscope.reference.libraries import library

CHUNK: Final = 512
"""Tokens of one forward: what is held at once are the states of so many, and not of a whole sequence."""
DTYPES: Final = ("float32", "bfloat16", "float16")

Take = Callable[[Any, Sequence[int]], None]
"""Takes the states of the next positions, [rows, aux layers x H], on the device, and the tokens there."""


class Target:
    """A causal language model in evaluation mode."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        """Load the target; nothing is fetched from elsewhere, and no code of the checkpoint runs.

        Raises:
            Problem: the device is not there, or transformers cannot load the checkpoint.
        """
        self._torch = torch = library("torch")
        transformers = library("transformers")
        transformers.utils.logging.disable_progress_bar()
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise Problem("--device cuda: torch sees no GPU here; leave it out to run on the processor")
        self.device, self.dtype = device, dtype
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), local_files_only=True
            )
            self.model: Any = model.to(device).eval()
        except Exception as error:  # whatever a checkpoint of another's makes it raise
            raise Problem(f"transformers cannot load {folder}: {error}") from error
        self._few_logits = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self.versions = {"torch": str(torch.__version__), "transformers": str(transformers.__version__)}

    @property
    def embeddings(self) -> Any:
        """Return the table of the input embeddings, [vocabulary, H]."""
        return self.model.get_input_embeddings().weight

    def walk(self, ids: Sequence[int], layers: Sequence[int], more: int, take: Take) -> list[int]:
        """Run over ``ids`` and return them with up to ``more`` tokens of the target's own greedy choice.

        ``take`` gets the states at each position in order. Generation ends at the model's end token.

        Raises:
            Problem: the model does not give the hidden states of its layers.
        """
        torch = self._torch
        known, done, cache = list(ids), 0, None
        ends = self._ends()
        with torch.inference_mode():
            while done < len(known):
                chunk = known[done : done + CHUNK]
                keep = {"logits_to_keep": 1} if self._few_logits else {}
                out = self.model(
                    torch.tensor([chunk], device=self.device),
                    past_key_values=cache,
                    use_cache=True,
                    output_hidden_states=True,
                    **keep,
                )
                states = out.hidden_states
                if states is None or len(states) <= max(layers):
                    raise Problem(
                        f"{type(self.model).__name__} gave {len(states or ())} hidden states, and that at "
                        f"{max(layers)} is wanted: name others with --layers"
                    )
                take(torch.cat([states[i][0] for i in layers], dim=-1), chunk)
                cache, done = out.past_key_values, done + len(chunk)
                if done == len(known) and len(known) < len(ids) + more and known[-1] not in ends:
                    known.append(int(out.logits[0, -1].argmax()))
        return known

    def _ends(self) -> set[int]:
        config = getattr(self.model, "generation_config", None)
        ends: Any = getattr(config, "eos_token_id", None)
        if ends is None:
            return set()
        return {int(one) for one in (ends if isinstance(ends, list | tuple) else [ends])}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
