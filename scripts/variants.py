"""Derives faulty draft checkpoints from a healthy one, so that no broken weights are stored.

A variant is a named edit of a draft's ``config.json`` and of the tensors in its
``model.safetensors``. The variants here are faults that SGLang 0.5.23 serves
without a word: the text stays right and only the acceptance falls.

Standard library only: the demo and the container build use it without torch.

    python3 scripts/variants.py seed-fault .demo/draft-seed-fault
    python3 scripts/variants.py --list
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

TINY_DRAFT = Path(__file__).resolve().parent.parent / "models" / "tiny" / "draft"
"""The healthy draft that variants are derived from unless another is named."""

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class VariantError(Exception):
    """A variant cannot be written; the message names the thing, the place and the next step."""


@dataclass(frozen=True)
class Variant:
    """One derived fault: what is changed, and what the change does in SGLang 0.5.23."""

    name: str
    fault_class: str
    """The class in the fault catalogue, ``F01`` to ``F24``."""
    effect: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys merged into the draft's ``config.json``; objects are merged key by key."""
    dropped_tensors: tuple[str, ...] = ()
    """Tensors left out of the draft's ``model.safetensors``."""
    renamed_tensors: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tensors stored there under another name."""


_ALL = (
    Variant(
        name="seed-fault",
        fault_class="F04",
        effect=(
            "The target is told not to capture aux hidden states, so the draft is fed its last hidden "
            "state, one hidden size wide. SGLang compares widths, sees nothing to project and skips fc."
        ),
        config={"eagle_config": {"use_aux_hidden_state": False}},
    ),
    Variant(
        name="wrong-layers",
        fault_class="F05",
        effect=(
            "The layer ids are written in the other convention (input of layer v, as vLLM reads them). "
            "SGLang reads them as output of layer v and captures one layer too late: a mild, uniform loss."
        ),
        config={
            "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
        },
    ),
    Variant(
        name="no-d2t",
        fault_class="F10",
        effect=(
            "The map from draft ids to target ids is missing from the checkpoint, so draft ids are "
            "proposed as if they were target ids."
        ),
        dropped_tensors=("d2t",),
    ),
    Variant(
        name="lost-weights",
        fault_class="F08",
        effect=(
            "A conversion has renamed one tensor and lost another. SGLang drops the unknown name and leaves "
            "the attention's output projection, and the keys' part of its input, as they were made."
        ),
        dropped_tensors=("midlayer.self_attn.k_proj.weight",),
        renamed_tensors={"midlayer.self_attn.o_proj.weight": "midlayer.self_attn.out_proj.weight"},
    ),
)

VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in _ALL}
"""Every variant by name; adding one here adds it to the command line and to the tests."""


def write_variant(name: str, destination: Path, source: Path = TINY_DRAFT) -> Path:
    """Write variant `name` of the draft in `source` to the folder `destination` and return it.

    An existing `destination` is replaced when it holds a draft written earlier and
    refused when it holds anything else. `source` is never changed.

    Raises VariantError: unknown name, `source` without a checkpoint, a tensor to change
    that is not there, or a `destination` that is not ours to replace.
    """
    variant = VARIANTS.get(name)
    if variant is None:
        raise VariantError(f"unknown variant {name!r}: choose one of {', '.join(VARIANTS)}")
    missing = [file for file in (CONFIG, WEIGHTS) if not (source / file).is_file()]
    if missing:
        lacks = " and ".join(missing)
        raise VariantError(f"{source} is no draft checkpoint, it lacks {lacks}; name one with --source")
    if destination.resolve() == source.resolve():
        raise VariantError(f"{destination} is the source itself; choose another destination")
    _make_room(destination)
    shutil.copytree(source, destination)
    config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    text = json.dumps(_merged(config, variant.config), indent=2) + "\n"
    (destination / CONFIG).write_text(text, encoding="utf-8")
    if variant.dropped_tensors or variant.renamed_tensors:
        _change_tensors(source / WEIGHTS, destination / WEIGHTS, variant)
    return destination


def _make_room(destination: Path) -> None:
    if not destination.exists():
        return
    if not destination.is_dir():
        raise VariantError(f"{destination} is a file; choose a folder that does not exist yet")
    if any(destination.iterdir()) and not (destination / WEIGHTS).is_file():
        raise VariantError(
            f"{destination} holds something else than a draft; choose a folder that does not exist yet"
        )
    shutil.rmtree(destination)


def _merged(base: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in edits.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            value = _merged(cast("dict[str, Any]", old), cast("Mapping[str, Any]", value))
        result[key] = value
    return result


def read_tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header and the data block of a safetensors file.

    Format: an unsigned little-endian 64-bit header length, that many bytes of JSON
    (name -> dtype, shape, data_offsets into the block), then the block.
    """
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def _change_tensors(source: Path, destination: Path, variant: Variant) -> None:
    header, data = read_tensors(source)
    names = (*variant.dropped_tensors, *variant.renamed_tensors)
    absent = [name for name in names if name not in header]
    if absent:
        known = ", ".join(sorted(header))
        raise VariantError(f"{source} holds no tensor {', '.join(absent)}; it has {known}")
    kept: dict[str, Any] = {}
    blocks: list[bytes] = []
    offset = 0
    for name, entry in header.items():
        if name in variant.dropped_tensors:
            continue
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            blocks.append(data[start:end])
            entry = {**entry, "data_offsets": [offset, offset + end - start]}
            offset += end - start
        kept[variant.renamed_tensors.get(name, name)] = entry
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (
        -len(text) % 8
    )  # the data block starts at a multiple of 8, as the writers of the format do it
    destination.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blocks))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write a faulty variant of a draft checkpoint.")
    parser.add_argument("name", nargs="?", choices=list(VARIANTS), help="which fault")
    parser.add_argument("destination", nargs="?", type=Path, help="folder to write")
    parser.add_argument(
        "--source", type=Path, default=TINY_DRAFT, help="healthy draft (default: models/tiny/draft)"
    )
    parser.add_argument("--list", action="store_true", help="say what each variant does")
    options = parser.parse_args(arguments)
    if options.list:
        for variant in VARIANTS.values():
            print(f"{variant.name} ({variant.fault_class}): {variant.effect}")
        return 0
    if options.name is None or options.destination is None:
        parser.error("a variant and a destination folder are needed (see --list)")
    try:
        written = write_variant(options.name, options.destination, options.source)
    except VariantError as error:
        print(f"variants: {error}", file=sys.stderr)
        return 2
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
