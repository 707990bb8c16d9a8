"""Makes a reference: every prompt through the target, its states reduced at once, one sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specscope import hidden, tensorstats
from specscope.reference import Problem, checkpoint, prompts
from specscope.reference.draft import Draft
from specscope.reference.libraries import library
from specscope.reference.prompts import Prompt
from specscope.reference.run import Target
from specscope.reference.tensors import norms
from specscope.reference_file import Facts, Passage, Track, lines
from specscope.version import __version__

_AUX_COLUMNS = len(tensorstats.COLUMNS)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What ``specscope fingerprint`` was asked for; ``layers`` ``None``: those that SGLang captures."""

    target: Path
    draft: Path | None
    prompts: Path
    layers: tuple[int, ...] | None
    more: int
    device: str
    dtype: str


def make(wanted: Wanted, say: Say) -> Iterator[str]:
    """Yield the lines of a reference file; ``say`` is told how far it is.

    Raises:
        Problem: something asked for cannot be done.
    """
    config = checkpoint.configuration(wanted.target)
    draft_config = None if wanted.draft is None else checkpoint.configuration(wanted.draft)
    given = prompts.read(wanted.prompts)
    library("torch")  # said before minutes are spent on hashing files
    library("transformers")
    target_facts = replace(checkpoint.model(wanted.target, config), norms=norms(wanted.target))
    layers = checkpoint.aux_layers(wanted.layers, target_facts.layers, draft_config)
    draft_facts = None
    if wanted.draft is not None and draft_config is not None:
        draft_facts = checkpoint.model(wanted.draft, draft_config)
    target = Target(wanted.target, wanted.device, wanted.dtype)
    draft = None
    if wanted.draft is not None:
        draft = Draft(wanted.draft, wanted.device, wanted.dtype, target.embeddings)
        _fitting(draft, target_facts.hidden_size, layers)
    ready = prompts.tokenised(given, _tokenizer(wanted.target) if _texts(given) else _no_text)
    prompts.check(ready, target_facts.vocab_size, wanted.more)
    same_as = {hidden.AUX_CAPTURE: hidden.FED}
    if draft is not None and not draft.normed:
        same_as[hidden.FC_IN] = hidden.FED
    facts = Facts(
        target=target_facts,
        draft=draft_facts,
        dtype=wanted.dtype,
        hidden_size=target_facts.hidden_size,
        aux_layers=layers,
        same_as=same_as,
        seed=tensorstats.SEED,
        made_with={"specscope": __version__, **target.versions},
    )
    yield from lines(facts, _passages(ready, target, draft, layers, wanted.more, say))


def _fitting(draft: Draft, hidden_size: int, layers: Sequence[int]) -> None:
    if draft.slots(hidden_size) != len(layers):
        raise Problem(
            f"{draft.folder}: its fc takes {draft.slots(hidden_size)} aux hidden states, and those of layers "
            f"{', '.join(map(str, layers))} are {len(layers)}: name the right ones with --layers"
        )


def _passages(
    given: Sequence[Prompt], target: Target, draft: Draft | None, layers: Sequence[int], more: int, say: Say
) -> Iterator[Passage]:
    for number, one in enumerate(given, start=1):
        made = _Made(len(layers), draft)
        ids = target.walk((*(one.ids or ()), *one.continuation), layers, more, made.take)
        if draft is not None:
            made.embeddings(ids, target)
        say(f"{number} of {len(given)}: {one.name}, {len(ids)} tokens")
        yield Passage(one.name, tuple(ids), len(one.ids or ()), made.tracks())


class _Made:
    """Numbers of one sequence, as they come."""

    def __init__(self, slots: int, draft: Draft | None) -> None:
        self._slots, self._draft = slots, draft
        self._parts: dict[str, list[Any]] = {}

    def take(self, rows: Any) -> None:
        """Take aux hidden states [rows, slots x H]."""
        self._add(hidden.FED, rows, self._slots)
        if self._draft is not None:
            fed = self._draft.fc_in(rows)
            if self._draft.normed:
                self._add(hidden.FC_IN, fed, self._slots)
            self._add(hidden.FC_OUT, self._draft.fc_out(fed), 1)

    def embeddings(self, ids: Sequence[int], target: Target) -> None:
        """Take the embeddings that a draft gets: at each position that of the next token."""
        torch: Any = library("torch")
        if self._draft is not None and len(ids) > 1:
            following = torch.tensor(ids[1:], device=target.device)
            self._add(hidden.EMBEDDING, self._draft.embed(following), 1)

    def tracks(self) -> tuple[Track, ...]:
        """Return everything, place by place and slot by slot."""
        tracks: list[Track] = []
        for place, parts in self._parts.items():
            found = np.concatenate(parts)
            for slot in range(found.shape[1]):
                mean, variance = (found[:, slot, i].astype(np.float64) for i in (0, 1))
                rms = np.sqrt(mean**2 + variance)
                projections = found[:, slot, _AUX_COLUMNS:].copy()
                unsound = found[:, slot, tensorstats.COLUMNS.index("nonfinite")] > 0
                rms[unsound], projections[unsound] = np.nan, np.nan
                tracks.append(Track(place, slot, rms.astype(np.float32), projections))
        return tuple(tracks)

    def _add(self, place: str, rows: Any, slots: int) -> None:
        found = tensorstats.reduce(rows.contiguous(), slots, projections=True)
        self._parts.setdefault(place, []).append(found.cpu().numpy())


def _texts(given: Sequence[Prompt]) -> bool:
    return any(one.ids is None for one in given)


def _no_text(text: str) -> Sequence[int]:
    raise Problem(f"no tokenizer was loaded for {text[:40]!r}")


def _tokenizer(folder: Path) -> Callable[[str], Sequence[int]]:
    transformers = library("transformers")
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever a checkpoint of another's makes it raise
        raise Problem(
            f"the prompts hold texts, and transformers cannot load the tokenizer of {folder}: {error}"
        ) from error
    return lambda text: tokenizer(text)["input_ids"]
