"""Faults that come into the world when a draft is trained, converted or packed: edits of its checkpoint.

Measured on the first tiny pair, chain of four, nine prompts of three domains one at a time (float32, greedy):
acceptance length of all, of each domain, and with eight at once; ``own`` is how many of 18 texts are the
target's own.

=================================  ====  =======  =========  ====  =======  ===
fault                              all   licence  docstring  copy  at once  own
=================================  ====  =======  =========  ====  =======  ===
healthy                            3.04  2.62     3.24       3.38  3.04     18
one_layer_listed                   1.13  1.09     1.11       1.19  1.13     18
layers_of_a_deeper_target          1.63  1.77     1.85       1.36  1.63     18
norms_less_one                     1.05  1.01     1.02       1.14  1.05     18
norm_before_fc_switched_on         1.29  1.19     1.16       1.62  1.29     18
normed_state_carried               1.85  1.72     1.90       1.94  1.85     18
head_under_another_name            1.02  1.00     1.02       1.05  1.02     18
layer_under_another_prefix         1.02  1.00     1.02       1.05  1.02     18
overflowed_to_nan                  1.02  1.00     1.02       1.05  1.02     18
tied_to_the_embedding              1.00  1.00     1.00       1.00  1.00     18
embedding_of_its_own               1.14  1.04     1.10       1.30  1.14     18
map_through_bfloat16               1.80  1.65     2.22       1.64  1.80     18
map_of_another_training            1.11  1.03     1.07       1.26  1.11     18
three_tokens_were_added            1.07  1.00     1.05       1.18  1.07     18
gate_and_up_swapped                1.85  1.73     1.68       2.25  1.85     18
trained_on_a_rotated_target        1.12  1.08     1.08       1.21  1.12     18
rope_layout_of_another_family      2.21  2.41     3.20       1.57  2.21     18
scaling_of_a_long_context_edition  2.23  2.41     3.32       1.57  2.23     18
theta_of_a_newer_family            2.19  2.52     3.29       1.48  2.19     18
=================================  ====  =======  =========  ====  =======  ===
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from checkpoint import Array, Checkpoint, read, write

Edit = Callable[[Checkpoint, Checkpoint], None]
"""(the draft, which is changed; its target, which is not)."""


@dataclass(frozen=True)
class Export:
    """``story`` says how it happens; it must be told from the draft alone, without this text."""

    name: str
    fault_class: str
    story: str
    edit: Edit


EXPORTS: dict[str, Export] = {}


def export(fault_class: str) -> Callable[[Edit], Edit]:
    """Enter an edit under its function's name, with its docstring as the story."""

    def enter(edit: Edit) -> Edit:
        EXPORTS[edit.__name__] = Export(edit.__name__, fault_class, (edit.__doc__ or "").strip(), edit)
        return edit

    return enter


def write_export(name: str, draft: Path, target: Path, destination: Path) -> None:
    """Write the draft in ``draft``, with the fault, to the new folder ``destination``."""
    made = read(draft)
    EXPORTS[name].edit(made, read(target))
    write(made, draft, destination)


def orthogonal(size: int, seed: int) -> Array:
    """A random rotation, ``[size, size]``, the same in every run."""
    values = np.random.default_rng(seed).standard_normal((size, size))
    return np.linalg.qr(values)[0].astype(np.float32)


QKV = tuple(f"midlayer.self_attn.{part}_proj.weight" for part in "qkv")


# --- F04, F05: what the target is told to capture -------------------------------------------------------


@export("F04")
def one_layer_listed(draft: Checkpoint, target: Checkpoint) -> None:
    """The converter kept only the middle id of the layers to capture, and the number of states that fc
    was made for. One state is as wide as the draft, so the width test finds nothing to project."""
    draft.config["num_aux_hidden_states"] = 3
    draft.config["eagle_config"] = {
        "use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": [3],
    }


@export("F05")
def layers_of_a_deeper_target(draft: Checkpoint, target: Checkpoint) -> None:
    """The configuration was copied from the draft of another target of the family: early, middle and late
    of ten layers instead of eight, counted from the embedding."""
    draft.config["eagle_config"] = {
        "use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": [0, 3, 6],
    }


# --- F06: norms -----------------------------------------------------------------------------------------


@export("F06")
def norms_less_one(draft: Checkpoint, target: Checkpoint) -> None:
    """The trainer's norm multiplies by 1 + w, as Gemma's does; it stored w, and
    the engine multiplies by it."""
    for name in draft.tensors:
        if name.endswith("norm.weight"):
            draft.change(name, lambda values: values - 1)


@export("F06")
def norm_before_fc_switched_on(draft: Checkpoint, target: Checkpoint) -> None:
    """A configuration key of a newer trainer, which normalises the target's states before fc. This draft
    was trained without that, and has no weight of such a norm."""
    draft.config["norm_before_fc"] = True


@export("F06")
def normed_state_carried(draft: Checkpoint, target: Checkpoint) -> None:
    """``norm_output`` taken over from another draft: the state after the last norm goes to the next step."""
    draft.config["norm_output"] = True


# --- F08: tensors that do not arrive --------------------------------------------------------------------


@export("F08")
def head_under_another_name(draft: Checkpoint, target: Checkpoint) -> None:
    """Exported from a trainer whose module is called ``draft_head``: no such parameter, dropped."""
    draft.tensors["draft_head.weight"] = draft.tensors.pop("lm_head.weight")


@export("F08")
def layer_under_another_prefix(draft: Checkpoint, target: Checkpoint) -> None:
    """``decoder.0`` where the loader knows ``midlayer`` and ``layers.0``: the whole layer is dropped."""
    for name in [one for one in draft.tensors if one.startswith("midlayer.")]:
        draft.tensors[name.replace("midlayer.", "decoder.0.")] = draft.tensors.pop(name)


@export("F08")
def overflowed_to_nan(draft: Checkpoint, target: Checkpoint) -> None:
    """One weight of the MLP overflowed in a half-precision save, and the next conversion made it NaN."""

    def overflowed(values: Array) -> Array:
        values = values.copy()
        values[np.unravel_index(np.abs(values).argmax(), values.shape)] = np.nan
        return values

    draft.change("midlayer.mlp.down_proj.weight", overflowed)


# --- F09: the target's weights in the place of the draft's own -------------------------------------------


@export("F09")
def tied_to_the_embedding(draft: Checkpoint, target: Checkpoint) -> None:
    """``tie_word_embeddings`` taken over from another configuration: the head is the embedding, which the
    target shares, and the checkpoint's own head has no parameter to go to."""
    draft.config["tie_word_embeddings"] = True


@export("F09")
def embedding_of_its_own(draft: Checkpoint, target: Checkpoint) -> None:
    """A draft that was trained with an embedding of its own (here the target's, rotated, with the rotation
    undone behind the input norm, so that the draft is as good as ever). The engine puts the target's
    embedding in its place."""
    name = next(one for one in target.tensors if one.endswith("embed_tokens.weight"))
    embedding = target.tensors[name].values()
    size = embedding.shape[1]
    turn = orthogonal(size, 1)
    draft.tensors["embed_tokens.weight"] = target.tensors[name].with_values(embedding @ turn)
    norm = "midlayer.input_layernorm.weight"
    weight = draft.tensors[norm].values()
    draft.change(norm, np.ones_like)

    def turned_back(values: Array) -> Array:
        return np.concatenate([(values[:, :size] * weight) @ turn, values[:, size:]], axis=1)

    for part in QKV:
        draft.change(part, turned_back)


# --- F10, F11: which token a draft id means --------------------------------------------------------------


@export("F10")
def map_through_bfloat16(draft: Checkpoint, target: Checkpoint) -> None:
    """All tensors were cast to bfloat16 by dropping bits, and the map back to integers: ids above 256 become
    even ones, above 512 multiples of four. (Rounded to nearest, 1022 becomes 1024, which is no token, and the
    engine ends at its first such draft.)"""

    def truncated(offsets: Array) -> Array:
        own = np.arange(len(offsets))
        bits = (own + offsets).astype(np.float32).view(np.uint32) >> 16 << 16
        return bits.astype(np.uint32).view(np.float32).astype(np.int64) - own

    draft.change("d2t", truncated)


@export("F10")
def map_of_another_training(draft: Checkpoint, target: Checkpoint) -> None:
    """The map was made again from another corpus's token counts, after the draft had been trained: the
    trainer's most frequent 640 of 1024 tokens are not quite these."""
    size = len(draft.tensors["d2t"].values())
    vocabulary = int(target.config["vocab_size"])

    def other(offsets: Array) -> Array:
        kept = set((np.arange(size) + offsets).tolist())
        rng = np.random.default_rng(3)
        gone = rng.choice(sorted(kept), 40, replace=False).tolist()
        new = rng.choice(sorted(set(range(vocabulary)) - kept), 40, replace=False).tolist()
        return np.array(sorted(kept - set(gone) | set(new))) - np.arange(size)

    draft.change("d2t", other)


@export("F11")
def three_tokens_were_added(draft: Checkpoint, target: Checkpoint) -> None:
    """The draft belongs to another edition of the tokenizer, which has three special tokens more in front
    of the text's: its vocabulary is three larger, and each text token's id three higher."""
    draft.config["vocab_size"] = int(target.config["vocab_size"]) + 3
    last = int(target.config["vocab_size"]) - 1

    def later(offsets: Array) -> Array:
        own = np.arange(len(offsets))
        ids = own + offsets
        return np.minimum(np.where(ids > 4, ids + 3, ids), last) - own

    draft.change("d2t", later)


# --- F12: the same numbers in another representation ------------------------------------------------------


@export("F12")
def gate_and_up_swapped(draft: Checkpoint, target: Checkpoint) -> None:
    """``w1`` and ``w3`` taken for one another in a conversion: both are of one shape and of one scale."""
    gate, up = "midlayer.mlp.gate_proj.weight", "midlayer.mlp.up_proj.weight"
    draft.tensors[gate], draft.tensors[up] = draft.tensors[up], draft.tensors[gate]


@export("F12")
def trained_on_a_rotated_target(draft: Checkpoint, target: Checkpoint) -> None:
    """The draft comes from a quantised edition of the target, whose hidden states are rotated; the served
    edition is the plain one. Each state's part of fc is turned: the same mean and
    spread, another direction."""

    def turned(values: Array) -> Array:
        size = values.shape[1] // 3
        turn = orthogonal(size, 2)
        return np.concatenate([values[:, at : at + size] @ turn for at in range(0, 3 * size, size)], axis=1)

    draft.change("fc.weight", turned)


@export("F12")
def rope_layout_of_another_family(draft: Checkpoint, target: Checkpoint) -> None:
    """Queries and keys are stored for a rotation of neighbouring pairs; the engine rotates halves."""

    def paired(values: Array) -> Array:
        head = int(draft.config["head_dim"])
        heads = values.reshape(-1, 2, head // 2, values.shape[1])
        return heads.transpose(0, 2, 1, 3).reshape(values.shape)

    for part in QKV[:2]:
        draft.change(part, paired)


# --- F13: rope --------------------------------------------------------------------------------------------


@export("F13")
def scaling_of_a_long_context_edition(draft: Checkpoint, target: Checkpoint) -> None:
    """``rope_scaling`` of the family's long-context edition: positions are divided by eight."""
    draft.config["rope_scaling"] = {"rope_type": "linear", "type": "linear", "factor": 8.0}


@export("F13")
def theta_of_a_newer_family(draft: Checkpoint, target: Checkpoint) -> None:
    """``rope_theta`` of the next generation of the family."""
    draft.config["rope_theta"] = 500000.0
