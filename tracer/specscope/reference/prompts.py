"""The prompts file: sequences of token ids, or texts still to be tokenised."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from specscope.reference import Problem
from specscope.reference_file import MAX_SEQUENCES, MAX_TOKENS, is_text

_IDS: Final = ("ids", "prompt")
_CONTINUATION: Final = ("continuation", "ref", "reference")
_NAME: Final = ("name", "id")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of a prompt and of what followed it; ``ids`` ``None``: ``text`` is still to be tokenised."""

    name: str
    ids: tuple[int, ...] | None
    text: str
    continuation: tuple[int, ...]


def read(path: Path) -> list[Prompt]:
    """Return the prompts of a file: a JSON list, or JSON lines, of objects.

    An object has ``ids`` (or ``prompt``) or ``text``, and may have ``continuation`` (or ``ref``,
    ``reference``) and ``name`` (or ``id``); other keys are ignored.

    Raises:
        Problem: the file cannot be read, is empty or too long, or an entry makes no sense.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"cannot read the prompts in {path}: {error}") from error
    entries = _entries(text, path)
    if not 0 < len(entries) <= MAX_SEQUENCES:
        raise Problem(f"{path} has {len(entries)} prompts, 1 to {MAX_SEQUENCES} may be")
    return [_prompt(entry, number, path) for number, entry in enumerate(entries)]


def tokenised(prompts: Sequence[Prompt], tokenise: Callable[[str], Sequence[int]]) -> list[Prompt]:
    """Return prompts that all have ids."""
    return [
        one if one.ids is not None else Prompt(one.name, tuple(tokenise(one.text)), "", one.continuation)
        for one in prompts
    ]


def check(prompts: Sequence[Prompt], vocab_size: int, more: int) -> None:
    """Check prompts that have ids against a target; ``more`` tokens will be added to each.

    Raises:
        Problem: one is empty, too long, or has an id that the target does not know.
    """
    for one in prompts:
        ids = (*(one.ids or ()), *one.continuation)
        if not one.ids or len(ids) + more > MAX_TOKENS:
            raise Problem(f"prompt {one.name!r} has {len(ids)} tokens, 1 to {MAX_TOKENS - more} may be")
        outside = [i for i in ids if not 0 <= i < vocab_size]
        if outside:
            raise Problem(
                f"prompt {one.name!r} has the token {outside[0]}, and the target's vocabulary has "
                f"{vocab_size}: was it made with another tokenizer?"
            )


def _entries(text: str, path: Path) -> list[object]:
    try:
        whole: object = json.loads(text)
        return cast("list[object]", whole) if isinstance(whole, list) else [whole]
    except RecursionError as error:
        raise Problem(f"{path} is nested too deeply to be prompts") from error
    except ValueError:
        pass
    found: list[object] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise Problem(f"line {number} of {path} is not JSON: {error}") from error
    return found


def _prompt(entry: object, number: int, path: Path) -> Prompt:
    where = f"prompt {number} of {path}"
    if not isinstance(entry, Mapping):
        raise Problem(f"{where} is no JSON object: {str(entry)[:60]!r}")
    values = cast("Mapping[str, Any]", entry)
    given = next((values[name] for name in _IDS if isinstance(values.get(name), list)), None)
    text = values.get("text")
    if given is None and not isinstance(text, str):
        raise Problem(f"{where} has neither 'ids', a list of token ids, nor 'text'")
    name = next((str(values[one]) for one in _NAME if one in values), str(number))
    more: Any = next((values[one] for one in _CONTINUATION if values.get(one) is not None), ())
    if not is_text(name) or not (given is not None or is_text(cast("str", text))):
        raise Problem(f"{where} has half a surrogate pair in its name or text, which no UTF-8 can hold")
    ids = None if given is None else _ids(given, where)
    return Prompt(name, ids, text if ids is None and isinstance(text, str) else "", _ids(more, where))


def _ids(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(
        type(one) is int for one in cast("Sequence[object]", value)
    ):
        raise Problem(f"{where} has token ids that are no list of whole numbers")
    return tuple(cast("Sequence[int]", value))
