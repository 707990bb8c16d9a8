"""What the folder of a checkpoint says without running it: configuration, files, layers to look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from specscope import model_facts
from specscope.reference import Problem
from specscope.reference_file import Model

TENSOR_FILES: Final = ("*.safetensors", "*.bin")
"""Files that hold tensors: those of the first kind that the folder has."""
_EAGLE: Final = "eagle_config"
_LAYER_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_ELSEWHERE: Final = (_LAYER_IDS, "aux_hidden_state_layer_ids")


def configuration(folder: Path) -> Mapping[str, Any]:
    """Return ``config.json`` of a checkpoint.

    Raises:
        Problem: there is none, or it is no JSON object.
    """
    path = folder / "config.json"
    try:
        value: object = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Problem(f"{folder} is no checkpoint: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Problem(f"{path} is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise Problem(f"{path} is no JSON object")
    return cast("Mapping[str, Any]", value)


def model(folder: Path, config: Mapping[str, Any]) -> Model:
    """Return the facts of a checkpoint; reads all of its tensor files once, for their hashes.

    Raises:
        Problem: the configuration lacks one of them, or there is no file with tensors.
    """
    stated = model_facts.stated(config)
    numbers = {name: stated.get(name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")}
    missing = [name for name, value in numbers.items() if not isinstance(value, int)]
    if missing:
        raise Problem(f"{folder / 'config.json'} does not state {', '.join(missing)}")
    by_kind = [sorted(folder.glob(pattern)) for pattern in TENSOR_FILES]
    files = next((paths for paths in by_kind if paths), by_kind[0])
    if not files:
        raise Problem(f"{folder} has no tensors: neither {' nor '.join(TENSOR_FILES)}")
    return Model(
        name=folder.resolve().name,
        architecture=architecture(config),
        hidden_size=cast("int", numbers["hidden_size"]),
        layers=cast("int", numbers["num_hidden_layers"]),
        vocab_size=cast("int", numbers["vocab_size"]),
        files={path.name: _sha256(path) for path in files},
    )


def architecture(config: Mapping[str, Any]) -> str:
    """Return the class that a configuration names first, empty where it names none."""
    named = config.get("architectures")
    return str(cast("list[object]", named)[0]) if isinstance(named, list) and named else ""


def aux_layers(
    given: tuple[int, ...] | None, layers: int, draft: Mapping[str, Any] | None
) -> tuple[int, ...]:
    """Return which hidden states SGLang hands to an EAGLE-3 draft, as inputs of those layers, in order.

    ``given`` wins. Else those of the draft's ``eagle_config``, whose ids mean the output of a layer: SGLang
    0.5.23 adds 1 (``set_eagle3_layers_to_capture`` of ``models/llama.py``). Else 2, L // 2 and L - 3.

    Raises:
        Problem: they cannot be told, or the target has no such layer.
    """
    ids = given if given is not None else _configured(draft, layers)
    # The output of the last layer is the input of none: SGLang never captures it.
    outside = [one for one in ids if not 0 <= one < layers]
    if outside or not ids or len(set(ids)) < len(ids):
        raise Problem(
            f"hidden states {', '.join(map(str, ids)) or '(none)'} cannot be captured from a target of "
            f"{layers} layers: name different ones from 0 (the embeddings) to {layers - 1} with --layers"
        )
    return ids


def _configured(draft: Mapping[str, Any] | None, layers: int) -> tuple[int, ...]:
    eagle = None if draft is None else draft.get(_EAGLE)
    ids = cast("Mapping[str, object]", eagle).get(_LAYER_IDS) if isinstance(eagle, Mapping) else None
    if isinstance(ids, list) and ids and all(type(one) is int for one in cast("list[object]", ids)):
        return tuple(one + 1 for one in cast("list[int]", ids))
    if ids is not None:
        told = str(cast("object", ids))[:60]
        raise Problem(f"the draft's {_EAGLE} has no list of layers in {_LAYER_IDS}: {told!r}")
    elsewhere = [name for name in _ELSEWHERE if draft is not None and draft.get(name) is not None]
    if elsewhere:
        raise Problem(
            f"the draft's configuration names layers in {elsewhere[0]!r} outside of {_EAGLE}, where SGLang "
            "does not read them and other engines count otherwise: say which with --layers"
        )
    return (2, layers // 2, layers - 3)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
