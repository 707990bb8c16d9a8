"""The file of a reference: what a sound run of a target holds at each token, to compare an engine with.

JSON lines, UTF-8. The first line names format, version and facts; then one line a sequence of tokens; the
last says how many sequences there were, so that a file that was cut off is noticed. The numbers of a
sequence are one packed blob (:mod:`specscope.columns`) in base64. ``docs/reference/fingerprint.md`` has all
names. Nothing in a file depends on when or where it was made: the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from specscope import columns, tensorstats
from specscope.hidden import PLACES, PROJECTIONS

FORMAT: Final = "specscope-reference"
VERSION: Final = 1
MAX_TOKENS: Final = 32_768
"""Tokens of one sequence: its numbers in six tracks take 10 MiB."""
MAX_SEQUENCES: Final = 4096
MAX_TRACKS: Final = 64
MAX_TEXTS: Final = 1000
NORM_TYPES: Final = ("float32", "bfloat16", "float16")
MAX_ID: Final = (1 << 31) - 1
MAX_ROWS: Final = 4 << 20
"""Rows of numbers of a whole file, one a place, slot and position: honest ones take some 100 MiB."""
_MAX_RAW: Final = 24 << 20
"""Numbers of one sequence: of :data:`MAX_TOKENS` tokens in 20 tracks."""
_PROJECTED: Final = tuple(f"p{j}" for j in range(PROJECTIONS))

Floats = NDArray[np.float32]


class ReferenceFileError(ValueError):
    """A file that is no reference that can be read here; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a tensor of a draft holds, as an engine would hold it: ``source`` are names of the checkpoint.

    Several sources are one tensor of the engine, one below the other. ``hash`` is as in
    :attr:`Model.norms`; ``mean``, ``std`` and ``max_abs`` are :class:`specscope.weight_values.Values`'.
    """

    source: tuple[str, ...]
    shape: tuple[int, ...]
    hash: str
    mean: float
    std: float
    max_abs: float


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint: the name of its folder, what its configuration states, SHA-256 of its tensor files.

    ``norms`` are hashes of its norms' weights by name, as :func:`specscope.weight_values.values` makes them,
    in each type of :data:`NORM_TYPES`: an engine tells such hashes of the weights that it holds.
    ``weights`` are those of a draft, all of them; empty for a target.
    """

    name: str
    architecture: str
    hidden_size: int
    layers: int
    vocab_size: int
    files: Mapping[str, str]
    norms: Mapping[str, str] = field(default_factory=dict[str, str])
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds for every sequence of a file.

    ``aux_layers`` are indices into the target's hidden states, slot by slot: index i is the input of layer
    i, which is the output of layer i - 1. ``same_as`` maps a place to the place whose rows are its rows too.
    ``dtype`` is that of the run, ``seed`` that of the projections' signs, ``made_with`` names versions.
    """

    target: Model
    draft: Model | None
    dtype: str
    hidden_size: int
    aux_layers: tuple[int, ...]
    same_as: Mapping[str, str]
    seed: int
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """What one place and slot held at the positions 0, 1, ... of a sequence.

    ``rms`` [positions], ``projections`` [positions, PROJECTIONS] as :mod:`specscope.tensorstats` defines
    them; NaN at a position whose row was not finite.
    """

    place: str
    slot: int
    rms: Floats
    projections: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """A sequence of tokens: ``ids``, of which the first ``prompt_tokens`` were given, and its tracks."""

    name: str
    ids: tuple[int, ...]
    prompt_tokens: int
    tracks: tuple[Track, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A :class:`Passage` with its numbers still packed."""

    name: str
    ids: tuple[int, ...]
    prompt_tokens: int
    packed: bytes

    def passage(self) -> Passage:
        """Return it with its numbers.

        Raises:
            ReferenceFileError: they cannot be read, or are not those of this many tokens.
        """
        return Passage(self.name, self.ids, self.prompt_tokens, unpack(self.packed, len(self.ids)))


# --- numbers of a sequence ------------------------------------------------------------------------


def pack(tracks: Sequence[Track]) -> bytes:
    """Pack tracks: one row a place, slot and position."""
    lengths = [len(track.rms) for track in tracks]
    packed: dict[str, columns.Column] = {
        "place": [t.place for t, n in zip(tracks, lengths, strict=True) for _ in range(n)],
        "slot": [t.slot for t, n in zip(tracks, lengths, strict=True) for _ in range(n)],
        "rms": [value for t in tracks for value in t.rms.tolist()],
    }
    for j, name in enumerate(_PROJECTED):
        packed[name] = [value for t in tracks for value in t.projections[:, j].tolist()]
    # zlib: a reader may have no zstd.
    return columns.encode(packed, codec=columns.ZLIB)


def unpack(blob: bytes, tokens: int) -> tuple[Track, ...]:
    """Return the tracks of a blob for a sequence of ``tokens`` tokens.

    Raises:
        ReferenceFileError: it is damaged, or has more tracks or positions than it may.
    """
    try:
        # Tokens are told one by one, so that a few hundred bytes cannot inflate to millions of rows.
        found = columns.decode(blob, max_raw=_MAX_RAW, max_rows=MAX_TRACKS * tokens)
    except columns.CodecError as error:
        raise ReferenceFileError(f"its numbers cannot be read: {error}") from error
    wanted: dict[str, type] = {"place": str, "slot": int, "rms": float} | dict.fromkeys(_PROJECTED, float)
    for name, kind in wanted.items():
        if name not in found:
            raise ReferenceFileError(f"its numbers lack the column {name!r}")
        if not all(isinstance(value, kind) for value in cast("list[object]", found[name])):
            raise ReferenceFileError(f"its column {name!r} holds something else than {kind.__name__}")
    places = cast("list[str]", found["place"])
    slots = cast("list[int]", found["slot"])
    if not all(0 <= slot < MAX_TRACKS for slot in slots):
        raise ReferenceFileError(f"it has numbers of slots that are not from 0 to {MAX_TRACKS - 1}")
    rms = np.array(found["rms"], dtype=np.float32)
    projections = np.array([found[name] for name in _PROJECTED], dtype=np.float32).T.reshape(-1, PROJECTIONS)
    tracks: list[Track] = []
    for place, slot, start, end in _runs(places, slots):
        if place not in PLACES:
            raise ReferenceFileError(f"it has numbers of a place {place[:40]!r} that is not known here")
        if end - start > tokens:
            raise ReferenceFileError(f"{place} slot {slot} has {end - start} positions for {tokens} tokens")
        tracks.append(Track(place, slot, rms[start:end], projections[start:end]))
    if len(tracks) > MAX_TRACKS or len({(t.place, t.slot) for t in tracks}) < len(tracks):
        raise ReferenceFileError(f"its {len(tracks)} tracks are too many, or one comes twice")
    return tuple(tracks)


def _runs(places: Sequence[str], slots: Sequence[int]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (place, slot, first row, end) of each run of rows of one place and slot."""
    start = 0
    for index in range(1, len(places) + 1):
        if index == len(places) or (places[index], slots[index]) != (places[start], slots[start]):
            yield places[start], slots[start], start, index
            start = index


# --- writing --------------------------------------------------------------------------------------


def lines(facts: Facts, passages: Iterable[Passage]) -> Iterator[str]:
    """Yield the lines of a file, each with its line end; ``passages`` are taken one at a time."""
    yield _line({"format": FORMAT, "version": VERSION, **asdict(facts)})
    count = 0
    for count, one in enumerate(passages, start=1):  # noqa: B007 - told in the last line
        yield _line(
            {
                "name": one.name,
                "ids": list(one.ids),
                "prompt_tokens": one.prompt_tokens,
                "rows": base64.b64encode(pack(one.tracks)).decode("ascii"),
            }
        )
    yield _line({"end": count})


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


# --- reading --------------------------------------------------------------------------------------


def read(lines: Iterable[str | bytes]) -> tuple[Facts, list[Stored]]:
    """Return the facts and the sequences of a file, whose lines are given; their numbers stay packed.

    Raises:
        ReferenceFileError: it is no reference, of another version or seed, cut off, or something in it makes
            no sense; the message names the line.
    """
    facts: Facts | None = None
    stored: list[Stored] = []
    ended, rows = False, 0
    for number, line in enumerate(lines, start=1):
        try:
            value = _parsed(line)
            if ended:
                raise ReferenceFileError("there is something behind the last line")
            if facts is None:
                facts = _facts(value)
            elif "end" in value:
                if value["end"] != len(stored):
                    raise ReferenceFileError(
                        f"it tells of {value['end']} sequences, and {len(stored)} came before it"
                    )
                ended = True
            elif len(stored) == MAX_SEQUENCES:
                raise ReferenceFileError(f"there are more than {MAX_SEQUENCES} sequences")
            else:
                one, more = _stored(value)
                rows += more
                if rows > MAX_ROWS:
                    raise ReferenceFileError(
                        f"there are more than {MAX_ROWS} rows of numbers up to here: make several files of it"
                    )
                stored.append(one)
        except ReferenceFileError as error:
            raise ReferenceFileError(f"line {number}: {error}") from error
    if facts is None:
        raise ReferenceFileError(f"the file is empty: a {FORMAT} file was expected")
    if not ended:
        raise ReferenceFileError(
            f"the file is cut off: its last line, with the number of sequences, is missing after "
            f"{len(stored)} of them; make it again, or copy it whole"
        )
    if not stored:
        raise ReferenceFileError("the file has no sequence")
    return facts, stored


def _parsed(line: str | bytes) -> Mapping[str, Any]:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise ReferenceFileError(
            f"not JSON ({error}); the file may be cut off or no {FORMAT} file"
        ) from error
    if not isinstance(value, Mapping):
        raise ReferenceFileError("not a JSON object")
    return cast("Mapping[str, Any]", value)


def _facts(value: Mapping[str, Any]) -> Facts:
    if value.get("format") != FORMAT:
        raise ReferenceFileError(f"not a {FORMAT} file: it does not say so in its first line")
    version = value.get("version")
    if version != VERSION:
        raise ReferenceFileError(
            f"it is of version {version!r} and this SpecScope reads version {VERSION}: make it again with "
            "the 'specscope fingerprint' of this version"
        )
    seed = _number(value, "seed", (1 << 64) - 1)
    if seed != tensorstats.SEED:
        raise ReferenceFileError(
            f"its projections use the signs of seed {seed}, engines those of seed {tensorstats.SEED}: the "
            "two cannot be compared; make it again"
        )
    layers = _typed(value, "aux_layers", list)
    if not all(type(one) is int and 0 <= one <= 4096 for one in layers) or not 0 < len(layers) <= MAX_TRACKS:
        raise ReferenceFileError(f"'aux_layers' are no layer numbers: {str(layers)[:80]}")
    return Facts(
        target=_model(_typed(value, "target", dict)),
        draft=None if value.get("draft") is None else _model(_typed(value, "draft", dict)),
        dtype=_text(value, "dtype")[:40],
        hidden_size=_number(value, "hidden_size", 1 << 20),
        aux_layers=tuple(layers),
        same_as=_texts(value, "same_as"),
        seed=seed,
        made_with=_texts(value, "made_with"),
    )


def _model(value: Mapping[str, Any]) -> Model:
    return Model(
        name=_text(value, "name")[:200],
        architecture=_text(value, "architecture")[:200],
        hidden_size=_number(value, "hidden_size", 1 << 20),
        layers=_number(value, "layers", 4096),
        vocab_size=_number(value, "vocab_size", MAX_ID),
        files=_texts(value, "files"),
        norms=_texts(value, "norms"),
        weights=_weights(value.get("weights", [])),
    )


def _weights(value: object) -> tuple[Weight, ...]:
    """Return the weights of a draft; files of before they were told have none."""
    if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_TEXTS:
        raise ReferenceFileError(f"'weights' is no list of at most {MAX_TEXTS} objects")
    return tuple(_weight(one) for one in cast("list[object]", value))


def _weight(value: object) -> Weight:
    if not isinstance(value, dict):
        raise ReferenceFileError("'weights' has something that is no object")
    told = cast("dict[str, Any]", value)
    source, shape = _typed(told, "source", list), _typed(told, "shape", list)
    if not 0 < len(source) <= MAX_TRACKS or not all(
        isinstance(name, str) and len(name) <= 200 and is_text(name) for name in source
    ):
        raise ReferenceFileError("the 'source' of a weight is no list of names")
    if len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
        raise ReferenceFileError("the 'shape' of a weight is no list of sizes")
    numbers = [told.get(name) for name in ("mean", "std", "max_abs")]
    if not all(isinstance(one, int | float) and np.isfinite(one) for one in numbers):
        raise ReferenceFileError("'mean', 'std' and 'max_abs' of a weight are no finite numbers")
    mean, std, largest = (float(cast("float", one)) for one in numbers)
    return Weight(tuple(source), tuple(shape), _text(told, "hash")[:200], mean, std, largest)


def _stored(value: Mapping[str, Any]) -> tuple[Stored, int]:
    """Return a sequence, and how many rows of numbers it has."""
    ids = _typed(value, "ids", list)
    if not 0 < len(ids) <= MAX_TOKENS:
        raise ReferenceFileError(f"a sequence has {len(ids)} tokens, 1 to {MAX_TOKENS} may be")
    if not all(type(one) is int and 0 <= one <= MAX_ID for one in ids):
        raise ReferenceFileError("a sequence has token ids that are no whole numbers from 0 on")
    prompt = _number(value, "prompt_tokens", len(ids))
    try:
        packed = base64.b64decode(_typed(value, "rows", str), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ReferenceFileError(f"'rows' is not base64: {error}") from error
    stored = Stored(_text(value, "name")[:200], tuple(ids), prompt, packed)
    return stored, sum(len(track.rms) for track in stored.passage().tracks)


def _typed(value: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    found = value.get(name)
    if not isinstance(found, kind):
        raise ReferenceFileError(f"{name!r} is {str(found)[:40]!r}, {kind.__name__} wanted")
    return found


def _number(value: Mapping[str, Any], name: str, most: int) -> int:
    found = value.get(name)
    if type(found) is not int or not 0 <= found <= most:
        raise ReferenceFileError(f"{name!r} is {str(found)[:40]!r}, a whole number from 0 to {most} wanted")
    return found


def _text(value: Mapping[str, Any], name: str) -> str:
    found: str = _typed(value, name, str)
    if not is_text(found):
        raise ReferenceFileError(f"{name!r} is {found[:40]!a}, and half a surrogate pair is no text")
    return found


def is_text(value: str) -> bool:
    """Say whether UTF-8 can hold a string: JSON may spell halves of surrogate pairs, which it cannot."""
    return not any("\ud800" <= one <= "\udfff" for one in value)


def _texts(value: Mapping[str, Any], name: str) -> Mapping[str, str]:
    found = cast("dict[object, object]", _typed(value, name, dict))
    if len(found) > MAX_TEXTS or not all(
        isinstance(x, str) and len(x) <= 200 and is_text(x) for x in (*found, *found.values())
    ):
        raise ReferenceFileError(f"{name!r} is no object of at most {MAX_TEXTS} short texts")
    return cast("Mapping[str, str]", found)
