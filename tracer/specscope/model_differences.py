"""Where a draft differs from its checkpoint and from its target, and why that matters. Pure functions.

Three descriptions come in, with the keys of :func:`specscope.model_facts.stated`: what the draft's checkpoint
states, the draft as the engine built it, the target as built. As built they also hold ``head_vocab`` (rows
of the output head), ``embed_vocab``, ``map`` (whether draft ids are mapped to target ids), ``fc_in``,
``aux_layers`` (outputs of which layers the target really captures, an empty list for none) and
``max_served`` (tokens the engine serves). What is ``None`` or absent is not compared: unknown is no
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

CHECK: Final = "check"
"""May cost acceptance: a person should look."""
NOTE: Final = "note"
"""Usual, or wanted; it explains other numbers."""

Model = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field with the three values (``None``: not stated or not known) and why it matters."""

    field: str
    checkpoint: Any
    draft: Any
    target: Any
    level: str
    why: str


@dataclass(frozen=True, slots=True)
class _Field:
    """``loaded``: why it matters that the draft is not as its checkpoint states; ``paired``: not as its
    target is. Empty: not compared.
    """

    name: str
    loaded: str = ""
    paired: str = ""
    paired_level: str = CHECK


_LOST: Final = "The engine built the draft otherwise than its checkpoint states"

_FIELDS: Final = (
    _Field(
        "rope_theta",
        f"{_LOST}: positions are encoded by another base, a loss that grows with the context (F13).",
        "Draft and target encode positions by different bases. A draft trained so is well; a conversion "
        "that lost the value decays with the context (F13).",
    ),
    _Field(
        "rope_scaling",
        f"{_LOST}: long contexts are encoded otherwise than in training (F13).",
        "Draft and target scale positions differently: fine while short, decaying with the context (F13).",
    ),
    _Field(
        "partial_rotary_factor",
        f"{_LOST}: another share of each head is rotated (F13).",
    ),
    _Field("vocab_size", "", "Tokenizers or paddings differ: ids may be out of range or mean others (F11)."),
    _Field("norm_eps", f"{_LOST}: norms add another epsilon (F06).", "Norms add different epsilons.", NOTE),
    _Field(
        "norm_flags",
        f"{_LOST}: a norm is missing or too many, so the carried states have another scale (F06).",
    ),
    _Field(
        "hidden_size", f"{_LOST}: another width.", "The widths differ: the embedding cannot be shared.", NOTE
    ),
    _Field(
        "num_hidden_layers", f"{_LOST}: another number of layers, so weights are unused or missing (F08)."
    ),
    _Field(
        "head_dim",
        f"{_LOST}: attention heads of another size.",
    ),
    _Field("tie_word_embeddings", f"{_LOST}: the output head is the embedding, or is not (F09)."),
    _Field("sliding_window", f"{_LOST}: attention sees another window (F17)."),
    _Field(
        "quantization",
        f"{_LOST}: quantised by another method (F12).",
        "One is quantised and the other not, or by another method: states the draft may not know (F12).",
        NOTE,
    ),
    _Field("bos_token_id", "", "The special tokens differ: another tokenizer or template (F11).", NOTE),
    _Field("eos_token_id", "", "The special tokens differ: another tokenizer or template (F11).", NOTE),
)


def differences(checkpoint: Model, draft: Model, target: Model) -> list[Difference]:
    """Return every difference, those to check first."""
    found = [one for field in _FIELDS for one in _compared(field, checkpoint, draft, target)]
    for special in _SPECIAL:
        found += special(checkpoint, draft, target)
    return sorted(found, key=lambda one: one.level != CHECK)


def as_json(found: list[Difference]) -> list[dict[str, Any]]:
    """Return differences as plain dictionaries."""
    return [asdict(one) for one in found]


def _compared(field: _Field, checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    stated, built, paired = checkpoint.get(field.name), draft.get(field.name), target.get(field.name)
    values = (field.name, stated, built, paired)
    if field.loaded and _differ(stated, built):
        yield Difference(*values, CHECK, field.loaded)
    elif field.paired and _differ(built, paired):
        yield Difference(*values, field.paired_level, field.paired)


def _differ(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return False
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) > 1e-9 * max(abs(one), abs(other))
    return one != other


def _aux_layers(checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    stated, captured = checkpoint.get("aux_layer_ids"), target.get("aux_layers")
    if captured is None:
        return
    field, why = "aux_layer_ids", ""
    if not captured:
        if draft.get("fc_in") and draft["fc_in"] != target.get("hidden_size"):
            why = (
                "The target hands over no aux hidden states, but the draft's fc is made for "
                f"{draft['fc_in']} values: it is fed the last hidden state and fc is skipped (F04)."
            )
    elif stated is not None and list(stated) != list(captured):
        why = "The target captures the outputs of other layers than the checkpoint names (F05)."
    elif len(set(captured)) != len(captured):
        why = "One layer is captured twice: the draft gets fewer different states than it takes (F05)."
    elif stated is not None and list(stated) == default_inputs(target.get("num_hidden_layers")):
        why = (
            "The checkpoint's ids are taken as outputs of layers. They are exactly the usual *inputs* "
            f"{stated} of EAGLE-3: if they were written in that convention, each state comes one layer "
            "too late (F05)."
        )
    if why:
        yield Difference(field, stated, None, captured, CHECK, why)
    elif stated is None and captured:
        why = "The checkpoint names no layers: the engine took its own default, as outputs of layers."
        yield Difference(field, None, None, captured, NOTE, why)


def default_inputs(layers: object) -> list[int] | None:
    """Return the inputs that EAGLE-3 takes from a target of ``layers`` layers where nothing is stated."""
    return [2, layers // 2, layers - 3] if isinstance(layers, int) else None


def _use_aux(checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    if checkpoint.get("use_aux") is False and draft.get("fc_in"):
        yield Difference(
            "use_aux_hidden_state",
            False,
            f"fc takes {draft['fc_in']}",
            target.get("aux_layers"),
            CHECK,
            "The checkpoint switches aux hidden states off although the draft has an fc for them (F04).",
        )


def _map(checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    head, vocab, mapped = draft.get("head_vocab"), target.get("vocab_size"), draft.get("map")
    if head is None or vocab is None or mapped is None:
        return
    values = ("draft_vocabulary", checkpoint.get("draft_vocab_size"), head, vocab)
    if head < vocab and not mapped:
        why = (
            f"The draft proposes ids below {head} of the target's {vocab} and there is no map (d2t): "
            "draft ids are taken for target ids (F10)."
        )
        yield Difference(*values, CHECK, why)
    elif head < vocab:
        why = f"The draft's head knows {head} of the target's {vocab} tokens: others can never be accepted."
        yield Difference(*values, NOTE, why)
    elif head > vocab:
        why = f"The draft's head has {head} rows, the target {vocab} tokens: ids may be out of range (F11)."
        yield Difference(*values, CHECK, why)


def _positions(checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    stated, served = draft.get("max_positions"), target.get("max_served") or target.get("max_positions")
    if stated is None or served is None:
        return
    values = ("max_positions", checkpoint.get("max_positions"), stated, target.get("max_positions"))
    if stated < served:
        why = (
            f"The engine serves up to {served} tokens, the draft is made for {stated}: beyond that it is "
            "skipped or extrapolates (F02, F13)."
        )
        yield Difference(*values, CHECK, why)
    elif _differ(checkpoint.get("max_positions"), stated):
        yield Difference(*values, CHECK, f"{_LOST}: another number of positions (F13).")


def _dtype(checkpoint: Model, draft: Model, target: Model) -> Iterator[Difference]:
    stated, built, paired = checkpoint.get("dtype"), draft.get("dtype"), target.get("dtype")
    if _differ(stated, built):
        wider = (stated, built) in _WIDER
        why = "The draft computes in another type than its checkpoint is made for (F12)."
        if wider:
            why = "The draft computes in a wider type than its checkpoint is stored in."
        yield Difference("dtype", stated, built, paired, NOTE if wider else CHECK, why)
    elif _differ(built, paired):
        why = "Draft and target compute in different types: hidden states are cast between them (F12)."
        yield Difference("dtype", stated, built, paired, CHECK, why)


_WIDER: Final = (("bfloat16", "float32"), ("float16", "float32"))
"""Types that another one holds without loss."""

_SPECIAL: Final[tuple[Callable[[Model, Model, Model], Iterator[Difference]], ...]] = (
    _aux_layers,
    _use_aux,
    _map,
    _positions,
    _dtype,
)
