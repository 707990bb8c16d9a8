"""The weights of a draft: what its checkpoint named, what was loaded, what is missing, shared or odd.

An :class:`Inventory` is put together from a model's parameters as they are now and from the loads that were
watched (:mod:`specscope.load_watch`); :mod:`specscope.weight_report` says what is odd about it and makes it
JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from specscope.load_watch import Load, Name, Parameter
from specscope.weight_values import Values, values

LOADED: Final = "loaded"
PARTLY: Final = "partly loaded"
MISSING: Final = "missing"
"""No name of the checkpoint reached it and it is not the target's: it holds what it held at first."""
SHARED: Final = "shared"
"""It lies where a parameter of the target lies."""
UNSEEN: Final = "written unseen"
"""Its contents changed during the load, by a way that the watch does not see."""
LATER: Final = "made later"
"""It did not exist while the checkpoint was loaded: made from loaded ones, e.g. by quantisation."""
UNKNOWN: Final = "not observed"
STATUSES: Final = (LOADED, PARTLY, MISSING, SHARED, UNSEEN, LATER, UNKNOWN)

Pointers = Mapping[int, str]
"""Address of a parameter's first element to the parameter's name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter as it is now.

    ``sources`` are the checkpoint's names that were written into it, ``filled`` the share of its elements
    that they covered (``None``: not observed). ``shared_with`` names the target's parameter at the same
    address, ``equal_to`` one that has the same hash elsewhere. ``values`` is ``None`` where its memory
    could not be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    status: str
    sources: tuple[str, ...] = ()
    filled: float | None = None
    shared_with: str = ""
    equal_to: str = ""
    values: Values | None = None

    @property
    def norm(self) -> bool:
        """Say whether it is the weight of a norm."""
        return "norm" in self.name.lower() and len(self.shape) == 1


@dataclass(frozen=True, slots=True)
class Inventory:
    """All of one draft model.

    ``reason`` says why its load was not observed, empty when it was; then ``names`` holds the fate of each
    name that the checkpoint yielded. ``ignored`` are the unused ones that the engine skips on purpose.
    ``init_std`` is the deviation that its configuration initialises weights with.
    """

    model: str
    reason: str
    names: Mapping[str, Name]
    ignored: frozenset[str]
    tensors: tuple[Tensor, ...]
    init_std: float | None = None
    more_unused: int = 0
    """Unused names that are counted and not kept: a draft may be read from a checkpoint of many thousands."""

    def named(self, status: str) -> list[str]:
        """Return the names of the tensors in a status."""
        return [one.name for one in self.tensors if one.status == status]

    @property
    def unused(self) -> list[str]:
        """Return the checkpoint's names that nothing looked at, but for those skipped on purpose."""
        return [n for n, fate in self.names.items() if not (fate.read or fate.into or n in self.ignored)]

    @property
    def used(self) -> list[str]:
        """Return the names that were read and went into no parameter (a token map, a scale)."""
        return [n for n, fate in self.names.items() if fate.read and not fate.into]

    @property
    def hashes(self) -> dict[str, str]:
        """Return the hash of each tensor that could be read."""
        return {one.name: one.values.hash for one in self.tensors if one.values is not None}


def together(loads: Sequence[Load]) -> Load | None:
    """Return several loads of one model as one, the first one's names; ``None`` for none.

    A parameter keeps the load that filled most of it: an update may bring a few tensors only.
    """
    if not loads:
        return None
    whole = Load(names=loads[0].names, error=loads[0].error, more_unused=loads[0].more_unused)
    for load in loads:
        for name, fate in load.parameters.items():
            known = whole.parameters.get(name)
            whole.parameters[name] = fate if known is None else _better(known, fate)
    return whole


def _better(known: Parameter, newer: Parameter) -> Parameter:
    best = newer if newer.filled >= known.filled and newer.sources else known
    return replace(best, changed=bool(known.changed or newer.changed) or best.changed)


def take(
    model: Any,
    *,
    load: Load | None,
    reason: str,
    target: Pointers,
    target_hashes: Mapping[str, str],
    init_std: float | None,
    ignores: Callable[[str], bool],
    readable: bool = True,
) -> Inventory:
    """Return the inventory of a torch model.

    ``target`` and ``target_hashes`` are the target's parameters by address and their hashes by name;
    ``ignores`` says of a checkpoint's name whether the engine skips it on purpose. With ``readable`` false
    (the engine has released the memory) no value is read.
    """
    watched = load if load is not None and not load.error else None
    why = reason or ("" if watched is not None else (load.error if load is not None else "no load was seen"))
    by_hash = {digest: name for name, digest in target_hashes.items()}
    tensors: list[Tensor] = []
    for name, parameter in model.named_parameters():
        fate = None if watched is None else watched.parameters.get(name)
        shared = target.get(int(parameter.data_ptr()), "") if parameter.numel() else ""
        found = _values(parameter) if readable else None
        tensors.append(
            Tensor(
                name=name,
                shape=tuple(int(n) for n in parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                status=SHARED if shared else _status(fate, observed=watched is not None),
                sources=() if fate is None else tuple(fate.sources),
                filled=None if fate is None or not fate.elements else fate.filled / fate.elements,
                shared_with=shared,
                equal_to="" if shared or found is None else by_hash.get(found.hash, ""),
                values=found,
            )
        )
    names: Mapping[str, Name] = {} if watched is None else watched.names
    return Inventory(
        model=type(model).__name__,
        reason=why,
        names=names,
        ignored=frozenset(n for n, f in names.items() if not f.into and not f.read and ignores(n)),
        tensors=tuple(tensors),
        init_std=init_std,
        more_unused=0 if watched is None else watched.more_unused,
    )


def _status(fate: Parameter | None, *, observed: bool) -> str:
    if not observed:
        return UNKNOWN
    if fate is None:
        return LATER
    if fate.filled:
        return LOADED if fate.filled == fate.elements else PARTLY
    return UNSEEN if fate.changed else MISSING


def _values(parameter: Any) -> Values | None:
    try:
        return values(parameter.data)
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None


def pointers(model: Any) -> dict[int, str]:
    """Return the parameters of a torch model by address; the first name of a tied one."""
    found: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        if parameter.numel():
            found.setdefault(int(parameter.data_ptr()), name)
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names whose hash is another one, appeared or is gone, in order."""
    names: Iterable[str] = dict.fromkeys((*before, *after))
    return [name for name in names if before.get(name) != after.get(name)]
