"""What an EAGLE-3 draft makes of aux hidden states and tokens before its own layer: fc and embeddings.

From the tensors of its checkpoint alone, as ``LlamaModel.forward`` of SGLang 0.5.23's
``models/llama_eagle3.py`` computes them: input_norm over the whole width, fc_norm slot by slot, then fc.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from specscope.reference import Problem
from specscope.reference.checkpoint import architecture, configuration
from specscope.reference.libraries import library
from specscope.reference.tensors import tensors

KNOWN: Final = ("LlamaForCausalLMEagle3",)
_OLD_NORMS: Final = ("aux_norm_low", "aux_norm_mid", "aux_norm_high")
"""Names that the norms of slots 0, 1, 2 had before ``fc_norm.0`` and so on."""
_HEAD: Final = ("fc.", "fc_norm.", "input_norm.", "embed_tokens.", *_OLD_NORMS)


class Draft:
    """The front of a draft: ``fc``, the norms before it, and the embeddings."""

    def __init__(self, folder: Path, device: str, dtype: str, target_embeddings: Any) -> None:
        """Read the tensors; the target's embeddings serve where the checkpoint has none of its own.

        Raises:
            Problem: the draft is of a kind, or has something, that is not known here.
        """
        self._torch = torch = library("torch")
        self.device, self.dtype = device, dtype
        self.config = config = configuration(folder)
        named = architecture(config)
        if named not in KNOWN:
            raise Problem(
                f"{folder}: how a draft of class {named!r} uses hidden states is not known here (known: "
                f"{', '.join(KNOWN)}); leave --draft out, and give its layers with --layers"
            )
        if config.get("quantization_config"):
            raise Problem(f"{folder}: a quantised draft cannot be read from its tensors; leave --draft out")
        self._tensors = {
            name: tensor.to(device, getattr(torch, dtype)) for name, tensor in _front(folder).items()
        }
        self.folder = folder
        self._weight = self._tensor("fc.weight")
        self._bias = self._tensor("fc.bias") if config.get("bias") else None
        eagle = config.get("eagle_config")
        flags = cast("Mapping[str, Any]", eagle) if isinstance(eagle, Mapping) else dict[str, Any]()
        self.norm_before_fc = bool(flags.get("norm_before_fc", config.get("norm_before_fc", False)))
        self.norm_slots = bool(config.get("fc_norm") or config.get("use_aux_norm"))
        self._refuse_unused()
        own = self._tensors.get("embed_tokens.weight")
        self.embeddings = target_embeddings if own is None else own
        self.own_embeddings = own is not None

    def slots(self, hidden_size: int) -> int:
        """Return how many aux hidden states of this width fc takes.

        Raises:
            Problem: its width is no multiple.
        """
        width = int(self._weight.shape[1])
        if width % hidden_size:
            raise Problem(
                f"{self.folder}: fc takes {width} values, which are no aux hidden states of {hidden_size}: "
                "is it a draft of this target?"
            )
        return width // hidden_size

    @property
    def normed(self) -> bool:
        """Say whether fc gets something else than the aux hidden states as they are."""
        return self.norm_before_fc or self.norm_slots

    def fc_in(self, rows: Any) -> Any:
        """Return what fc gets of aux hidden states [rows, slots x H]."""
        if self.norm_before_fc:
            rows = self._normed(rows, self._tensor("input_norm.weight"))
        if self.norm_slots:
            width = self._tensor_of_slot(0).shape[0]
            chunks = rows.split(width, dim=-1)
            normed = [self._normed(one, self._tensor_of_slot(i)) for i, one in enumerate(chunks)]
            rows = self._torch.cat(normed, dim=-1)
        return rows

    def fc_out(self, fed: Any) -> Any:
        """Return fc of what :meth:`fc_in` gave."""
        return self._torch.nn.functional.linear(fed, self._weight, self._bias)

    def embed(self, ids: Any) -> Any:
        """Return the embeddings of token ids.

        Raises:
            Problem: the table is shorter than the target's vocabulary.
        """
        if len(ids) and int(ids.max()) >= len(self.embeddings):
            raise Problem(f"{self.folder}: its embeddings have no row for the token {int(ids.max())}")
        return self.embeddings[ids]

    def _normed(self, rows: Any, weight: Any) -> Any:
        return normed(rows, weight, self.config["rms_norm_eps"])

    def _tensor(self, name: str) -> Any:
        found = self._tensors.get(name)
        if found is None:
            raise Problem(f"{self.folder}: its configuration asks for {name}, and the checkpoint has none")
        return found

    def _tensor_of_slot(self, slot: int) -> Any:
        old = self._tensors.get(f"{_OLD_NORMS[slot]}.weight") if slot < len(_OLD_NORMS) else None
        return self._tensor(f"fc_norm.{slot}.weight") if old is None else old

    def _refuse_unused(self) -> None:
        """Refuse a tensor that the configuration does not use: an engine drops it, and nobody knows why.

        Raises:
            Problem: there is one.
        """
        used = {"fc.weight": True, "embed_tokens.weight": True, "fc.bias": self._bias is not None}
        for name in self._tensors:
            norm = self.norm_before_fc if name.startswith("input_norm.") else self.norm_slots
            if not used.get(name, norm):
                raise Problem(
                    f"{self.folder}: the checkpoint has {name}, and its configuration does not say that "
                    "it is used: an engine may leave it out. Correct config.json, or leave --draft out"
                )


def normed(rows: Any, weight: Any, eps: float) -> Any:
    """Return RMSNorm as the engine computes it: in float32, then rounded."""
    values = rows.float()
    scale = (values.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return (values * scale * weight.float()).to(rows.dtype)


def _front(folder: Path) -> dict[str, Any]:
    """Return the tensors before the draft's layers, by name without ``model.``."""
    found = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors(folder, lambda name: name.removeprefix("model.").startswith(_HEAD))
    }
    if "fc.weight" not in found:
        raise Problem(f"{folder} has no fc.weight in its *.safetensors: it is no EAGLE-3 draft")
    return found
