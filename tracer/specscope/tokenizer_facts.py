"""Which tokens a checkpoint's tokenizer files count: a hash to hold two checkpoints against each other.

Hashed is what the ids mean, not the bytes of the file: the same vocabulary is written in many ways. Two
hashes are comparable only where both were made of the same kind of file. Standard library alone; read once
a folder, before the engine serves, and at most :data:`MAX_BYTES`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

MAX_BYTES: Final = 64 << 20
"""Of one file: those in use have up to some 33 MiB (262,144 tokens with their merges)."""
TOKENIZER_JSON: Final = "tokenizer.json"
VOCAB_JSON: Final = "vocab.json"
SENTENCEPIECE: Final = "tokenizer.model"
_BYTES: Final = 8


@lru_cache(8)
def of(folder: str) -> Mapping[str, Any] | None:
    """Return ``file`` (its name), ``hash`` (16 hex digits) and, where they are counted, ``tokens``.

    ``None``: ``folder`` is none on this disk, has no such file, or one that is too large or cannot be read.
    Never raises.
    """
    try:
        return _json(Path(folder)) or _sentencepiece(Path(folder))
    except Exception:  # noqa: BLE001 - a file of any shape is no reason not to serve
        return None


def _json(folder: Path) -> Mapping[str, Any] | None:
    for name in (TOKENIZER_JSON, VOCAB_JSON):
        data = _read(folder / name)
        if data is None:
            continue
        told: Any = json.loads(data)
        ids = ids_of(told) if name == TOKENIZER_JSON else dict(_tokens(told))
        if ids:
            return {"file": name, "hash": hash_of(ids), "tokens": len(ids)}
    return None


def ids_of(told: Any) -> dict[int, str]:
    """Return what each id stands for in the content of a ``tokenizer.json``, added tokens included.

    Raises whatever reading a file of another shape raises.
    """
    return dict(_added(told.get("added_tokens"))) | dict(_tokens(told["model"]["vocab"]))


def hash_of(ids: Mapping[int, str]) -> str:
    """Return the 16 hex digits that stand for these tokens, in whatever order they come."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    for number in sorted(ids):
        digest.update(f"{number}\0{ids[number]}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _sentencepiece(folder: Path) -> Mapping[str, Any] | None:
    data = _read(folder / SENTENCEPIECE)
    if not data:
        return None
    return {"file": SENTENCEPIECE, "hash": hashlib.blake2b(data, digest_size=_BYTES).hexdigest()}


def _read(file: Path) -> bytes | None:
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        return None
    return file.read_bytes()


def _tokens(vocab: Any) -> Iterable[tuple[int, str]]:
    """Yield (id, token): of a mapping, or of the list of (token, score) that unigram models have."""
    if isinstance(vocab, dict):
        return ((int(number), token) for token, number in cast("dict[str, Any]", vocab).items())
    return ((number, str(one[0])) for number, one in enumerate(cast("list[Any]", vocab)))


def _added(listed: Any) -> Iterable[tuple[int, str]]:
    return ((int(one["id"]), str(one["content"])) for one in cast("list[Any]", listed or []))
