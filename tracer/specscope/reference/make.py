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
from specscope.reference.draft_layer import DraftLayer
from specscope.reference.libraries import library
from specscope.reference.prompts import Prompt
from specscope.reference.run import Target
from specscope.reference.tensors import norms, weights
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
        draft_facts = replace(checkpoint.model(wanted.draft, draft_config), weights=weights(wanted.draft))
    target = Target(wanted.target, wanted.device, wanted.dtype)
    draft, layer = None, None
    if wanted.draft is not None:
        draft = Draft(wanted.draft, wanted.device, wanted.dtype, target.embeddings)
        _fitting(draft, target_facts.hidden_size, layers)
        layer = _layer(draft, say)
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
    made = _Maker(target, draft, layer, layers)
    yield from lines(facts, _passages(ready, made, wanted.more, say))


def _fitting(draft: Draft, hidden_size: int, layers: Sequence[int]) -> None:
    if draft.slots(hidden_size) != len(layers):
        raise Problem(
            f"{draft.folder}: its fc takes {draft.slots(hidden_size)} aux hidden states, and those of layers "
            f"{', '.join(map(str, layers))} are {len(layers)}: name the right ones with --layers"
        )


def _layer(draft: Draft, say: Say) -> DraftLayer | None:
    """Return the draft's layer; of one that is not known here all else of the reference is made."""
    try:
        return DraftLayer(draft)
    except Problem as problem:
        say(f"without {hidden.CARRY}: the layer of {draft.folder} cannot be computed here: {problem}")
        return None


@dataclass(frozen=True, slots=True)
class _Maker:
    """What every sequence is run through."""

    target: Target
    draft: Draft | None
    layer: DraftLayer | None
    layers: Sequence[int]


def _passages(given: Sequence[Prompt], maker: _Maker, more: int, say: Say) -> Iterator[Passage]:
    for number, one in enumerate(given, start=1):
        made = _Made(maker)
        ids = maker.target.walk((*(one.ids or ()), *one.continuation), maker.layers, more, made.take)
        made.end(ids)
        say(f"{number} of {len(given)}: {one.name}, {len(ids)} tokens")
        yield Passage(one.name, tuple(ids), len(one.ids or ()), made.tracks())


class _Made:
    """Numbers of one sequence, as they come."""

    def __init__(self, maker: _Maker) -> None:
        self._slots, self._draft, self._device = len(maker.layers), maker.draft, maker.target.device
        self._states = None if maker.layer is None else maker.layer.states()
        self._parts: dict[str, list[Any]] = {}

    def take(self, rows: Any, ids: Sequence[int]) -> None:
        """Take aux hidden states [rows, slots x H] and the tokens at their positions."""
        self._add(hidden.FED, rows, self._slots)
        if self._draft is not None:
            fed = self._draft.fc_in(rows)
            if self._draft.normed:
                self._add(hidden.FC_IN, fed, self._slots)
            out = self._draft.fc_out(fed)
            self._add(hidden.FC_OUT, out, 1)
            self._carry(self._draft, out, ids, last=False)

    def end(self, ids: Sequence[int]) -> None:
        """Take the whole sequence; a draft gets at each position the embedding of the next token."""
        torch: Any = library("torch")
        if self._draft is not None and len(ids) > 1:
            following = torch.tensor(ids[1:], device=self._device)
            self._add(hidden.EMBEDDING, self._draft.embed(following), 1)
            self._carry(self._draft, (), (), last=True)

    def _carry(self, draft: Draft, fed: Any, ids: Sequence[int], *, last: bool) -> None:
        states = None if self._states is None else self._states.take(draft, fed, ids, last=last)
        if states is not None:
            self._add(hidden.CARRY, states, 1)

    def tracks(self) -> tuple[Track, ...]:
        """Return everything, place by place and slot by slot."""
        tracks: list[Track] = []
        for place in sorted(self._parts, key=hidden.PLACES.index):
            found = np.concatenate(self._parts[place])
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
