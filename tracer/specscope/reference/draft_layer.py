"""What the layer of an EAGLE-3 draft leaves at each position of a sequence, behind fc and the embeddings.

As ``LlamaDecoderLayer`` and ``LlamaModel.forward`` of SGLang 0.5.23's ``models/llama_eagle3.py`` compute it
in a draft extend: at position p the embedding of the token p + 1 beside fc of the target's states at p, each
behind its own norm, then attention over the positions 0 to p and the MLP. What is left is the state that the
first draft step takes: the residual before the final norm, or behind it with ``norm_output``. Positions are
the target's (``eagle_worker_v2.py``: "The draft runs at absolute target positions").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from specscope.reference import Problem
from specscope.reference.draft import Draft, normed
from specscope.reference.libraries import library
from specscope.reference.tensors import tensors

CHUNK: Final = 512
"""Positions of one forward; the scores of attention are [heads, CHUNK, positions so far] at most."""
_LEGACY: Final = "midlayer."
_LAYER: Final = "layers.0."
_LAYERS: Final = (_LEGACY, "layers.")
_NORMS: Final = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
_ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP: Final = ("gate_proj", "up_proj", "down_proj")
_NAMES: Final = frozenset(
    f"{name}.weight"
    for name in (
        *_NORMS,
        *(f"self_attn.{name}" for name in _ATTENTION),
        *(f"mlp.{name}" for name in _MLP),
    )
)
_UNUSED: Final = "self_attn.rotary_emb.inv_freq"
"""A buffer that old checkpoints carry along; engines compute it."""
_ROPES: Final = ("default", "linear", "llama3", "yarn")
"""Kinds of RoPE whose angles do not depend on how long the sequence becomes."""


class DraftLayer:
    """The one layer of a draft, from its checkpoint's tensors."""

    def __init__(self, draft: Draft) -> None:
        """Read the tensors.

        Raises:
            Problem: the layer is of a kind, or has something, that is not known here.
        """
        self._torch = torch = library("torch")
        transformers = library("transformers")
        self._llama = library("transformers.models.llama.modeling_llama")
        self._device = draft.device
        _known_kind(draft)
        try:
            config = transformers.LlamaConfig.from_pretrained(draft.folder, local_files_only=True)
            self._rope: Any = self._llama.LlamaRotaryEmbedding(config).to(self._device)
        except Exception as error:  # whatever a configuration of another's makes it raise
            raise Problem(f"transformers cannot make RoPE of its configuration: {error}") from error
        if self._rope.rope_type not in _ROPES:
            raise Problem(f"its RoPE is of the kind {self._rope.rope_type!r} (known: {', '.join(_ROPES)})")
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._width: int = config.head_dim or config.hidden_size // config.num_attention_heads
        self._eps: float = config.rms_norm_eps
        found = _tensors(draft.folder)
        self._check_shapes(found, config.hidden_size, config.intermediate_size)
        dtype = getattr(torch, draft.dtype)
        self._tensors: dict[str, Any] = {name: one.to(draft.device, dtype) for name, one in found.items()}
        self._norm_output = bool(draft.config.get("norm_output", False))
        if self._norm_output and "norm.weight" not in self._tensors:
            raise Problem("its configuration says norm_output, and the checkpoint has no norm.weight")

    def states(self) -> States:
        """Return the layer at the start of a sequence."""
        return States(self)

    def forward(self, embeddings: Any, fed: Any, cache: list[Any], start: int) -> Any:
        """Return the states [rows, H] at ``start`` and behind, and add their keys and values to ``cache``."""
        torch = self._torch
        both = torch.cat(
            [self._normed(embeddings, "input_layernorm"), self._normed(fed, "hidden_norm")], dim=-1
        )
        residual = fed + self._attention(both, cache, start)
        found = residual + self._mlp(self._normed(residual, "post_attention_layernorm"))
        return normed(found, self._tensors["norm.weight"], self._eps) if self._norm_output else found

    def _attention(self, rows: Any, cache: list[Any], start: int) -> Any:
        torch, count = self._torch, len(rows)
        query, key, value = (
            self._linear(rows, f"self_attn.{name}").view(1, count, heads, self._width).transpose(1, 2)
            for name, heads in (
                ("q_proj", self._heads),
                ("k_proj", self._kv_heads),
                ("v_proj", self._kv_heads),
            )
        )
        positions = torch.arange(start, start + count, device=self._device)
        # Angles in float32 whatever the type of the run, as engines keep them.
        cos, sin = self._rope(rows.float(), positions[None])
        query, key = self._llama.apply_rotary_pos_emb(query.float(), key.float(), cos, sin)
        query, key = query.to(rows.dtype), key.to(rows.dtype)
        if cache:
            key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
        cache[:] = [key, value]
        seen = torch.arange(start + count, device=self._device)[None] <= positions[:, None]
        found = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, enable_gqa=self._heads != self._kv_heads
        )
        return self._linear(found.transpose(1, 2).reshape(count, -1), "self_attn.o_proj")

    def _mlp(self, rows: Any) -> Any:
        gate = self._torch.nn.functional.silu(self._linear(rows, "mlp.gate_proj"))
        return self._linear(gate * self._linear(rows, "mlp.up_proj"), "mlp.down_proj")

    def _linear(self, rows: Any, name: str) -> Any:
        return self._torch.nn.functional.linear(rows, self._tensors[f"{name}.weight"])

    def _normed(self, rows: Any, name: str) -> Any:
        return normed(rows, self._tensors[f"{name}.weight"], self._eps)

    def _check_shapes(self, tensors: Mapping[str, Any], hidden: int, inner: int) -> None:
        """Check that the tensors are of the sizes that the configuration states.

        Raises:
            Problem: one is not.
        """
        query, key = self._heads * self._width, self._kv_heads * self._width
        wanted = dict.fromkeys((f"{name}.weight" for name in _NORMS), (hidden,)) | {
            "self_attn.q_proj.weight": (query, 2 * hidden),
            "self_attn.k_proj.weight": (key, 2 * hidden),
            "self_attn.v_proj.weight": (key, 2 * hidden),
            "self_attn.o_proj.weight": (hidden, query),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        for name, shape in wanted.items():
            found = list(tensors[name].shape)
            if found != list(shape):
                raise Problem(f"its {name} is {found}, and its configuration makes it {list(shape)}")


class States:
    """The states of one sequence, as what they are made of comes."""

    def __init__(self, layer: DraftLayer) -> None:
        """Start at position 0."""
        self._torch: Any = library("torch")
        self._layer = layer
        self._cache: list[Any] = []
        self._done = 0
        self._fed: list[Any] = []
        self._ids: list[int] = []
        """Outputs of fc that no state was made of, and the tokens at their positions."""

    def take(self, draft: Draft, fed: Any, ids: Sequence[int], *, last: bool) -> Any | None:
        """Take fc's output [rows, H] at the next positions and the tokens there; return states that follow.

        A state needs the token behind it, so that of the last position never comes, and states come in
        pieces of :data:`CHUNK` unless it was the ``last`` call. ``None``: none yet.

        Raises:
            Problem: the draft has no embedding for a token.
        """
        if len(fed):
            self._fed.append(fed)
        self._ids.extend(ids)
        if len(self._ids) < 2 or not (last or len(self._ids) > CHUNK):
            return None
        torch = self._torch
        rows = torch.cat(self._fed)
        found: list[Any] = []
        ready = len(rows) - 1
        with torch.inference_mode():
            for start in range(0, ready, CHUNK):
                end = min(start + CHUNK, ready)
                following = torch.tensor(self._ids[start + 1 : end + 1], device=rows.device)
                embedded = draft.embed(following)
                found.append(self._layer.forward(embedded, rows[start:end], self._cache, self._done + start))
        self._done += ready
        self._fed, self._ids = [rows[ready:]], self._ids[ready:]
        return torch.cat(found)


def _known_kind(draft: Draft) -> None:
    """Refuse what the configuration says of the layer and is not computed here.

    Raises:
        Problem: there is something.
    """
    told = draft.config
    for name, known in (
        ("model_type", ("llama",)),
        ("num_hidden_layers", (1,)),
        ("hidden_act", ("silu",)),
        ("partial_rotary_factor", (None, 1, 1.0)),
        ("rope_is_neox_style", (None, True)),
    ):
        value = told.get(name)
        if value not in known:
            raise Problem(f"its configuration has {name} {value!r} (known: {known[-1]!r})")
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(told.get(name), dict) and "mrope_section" in told[name]:
            raise Problem("its positions are of several dimensions (mrope_section)")


def _tensors(folder: Path) -> dict[str, Any]:
    """Return the layer's tensors by their name within it, and ``norm.weight``, the final norm.

    Raises:
        Problem: one is missing, or there is one that is not known.
    """
    found: dict[str, Any] = {}
    for name, tensor in tensors(folder, lambda name: _plain(name).startswith((*_LAYERS, "norm."))):
        found[_plain(name).replace(_LEGACY, _LAYER).removeprefix(_LAYER)] = tensor
    missing = sorted(_NAMES - found.keys())
    if missing:
        raise Problem(f"its checkpoint has no {_LAYER}{missing[0]} (or {_LEGACY}{missing[0]})")
    unknown = sorted(found.keys() - _NAMES - {"norm.weight", _UNUSED})
    if unknown:
        raise Problem(f"its checkpoint has {unknown[0]} in its layers, which is not known here")
    return found


def _plain(name: str) -> str:
    return name.removeprefix("model.")
