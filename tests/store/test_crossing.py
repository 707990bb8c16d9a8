"""Every read, asked for one workspace, answers the same whether another one is there or not.

The two share every id that can be shared. A read that is added is asked as well: its parameters have values
by their names here, and a name without one fails.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from specscope_server.store.model import RequestFilter
from specscope_server.store.opening import open_store
from specscope_server.store.port import Reads, Store
from storekit import facts
from storekit.everything import REFERENCE, RESPONSE, RID, TOKENIZER, TRACE, UID, Workspace, fill

MINE = Workspace("mine", "oak", 4817)
THEIRS = Workspace("theirs", "birch", 9253)
METHODS = sorted(name for name, what in vars(Reads).items() if inspect.isfunction(what) and name[0] != "_")
OF_ALL = {
    "engine_uids": "the evaluator goes over all workspaces, and is told whose each engine is",
    "heard": "likewise",
    "used_bytes": "one database is one file, and how large it may grow is said of all of it",
}
VALUES: dict[str, tuple[Any, ...]] = {
    "engine_uid": (MINE.engine, THEIRS.engine, None),
    "engine_uids": (None, (MINE.engine, THEIRS.engine)),
    "uid": (UID, "health"),
    "reference_uid": (REFERENCE,),
    "tokenizer_hash": (TOKENIZER,),
    "number": (0,),
    "since": (facts.ago(600),),
    "until": (facts.NOW,),
    "now": (facts.NOW,),
    "window_s": (300,),
    "bucket_s": (10, 60),
    "dimension": ("all", "context"),
    "value": (None,),
    "position": (None,),
    "first_step": (0,),
    "steps": (200,),
    "limit": (100,),
    "event_id": (1, 2),
    "cursor": (None,),
    "active": (True, False),
    "where": (
        {},
        {"rid": RID},
        {"trace_id": TRACE},
        {"response_id": RESPONSE},
        {"text": RID},
        {"text": "cd" * 16},
        {"model": f"model {THEIRS.word}"},
        {"engine_uid": THEIRS.engine},
    ),
}


def asked(name: str, workspace: str) -> Iterator[dict[str, Any]]:
    """Every combination of values for the parameters of a read."""
    names = [n for n in inspect.signature(getattr(Reads, name)).parameters if n != "self"]
    assert "workspace" in names or "where" in names, f"{name} does not say of which workspace"
    choices: list[tuple[Any, ...]] = []
    for parameter in names:
        if parameter == "workspace":
            choices.append((workspace,))
        elif parameter == "where":
            choices.append(tuple(RequestFilter(workspace, **where) for where in VALUES["where"]))
        else:
            choices.append(VALUES[parameter])
    for values in itertools.product(*choices):
        yield dict(zip(names, values, strict=True))


def answers(store: Store, name: str, workspace: str) -> list[str]:
    with store.snapshot() as reads:
        return [f"{given}: {getattr(reads, name)(**given)!r}" for given in asked(name, workspace)]


def _opened(url: str, *workspaces: Workspace) -> Store:
    store = open_store(url, clock=lambda: facts.NOW_NS)
    for workspace in workspaces:
        fill(store, workspace, facts.NOW)
    return store


@pytest.fixture(scope="module")
def alone_and_both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    """A store with one workspace, and one with the other as well, of each kind."""
    folder = tmp_path_factory.mktemp("crossing")
    opened = [
        _opened(f"sqlite:///{folder / 'alone.db'}", MINE),
        _opened(f"sqlite:///{folder / 'both.db'}", MINE, THEIRS),
    ]
    yield opened[0], opened[1]
    for store in opened:
        store.close()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in OF_ALL])
def test_a_read_does_not_see_another_workspace(alone_and_both: tuple[Store, Store], name: str) -> None:
    alone, both = alone_and_both
    mine = answers(both, name, MINE.name)
    assert mine == answers(alone, name, MINE.name)
    assert not any(THEIRS.word in answer.replace(f"'model {THEIRS.word}'", "", 1) for answer in mine)
    # The other's own answers are others, or this test would see nothing.
    assert answers(both, name, THEIRS.name) != answers(alone, name, THEIRS.name)


def test_what_is_of_all_workspaces_is_known(alone_and_both: tuple[Store, Store]) -> None:
    _, both = alone_and_both
    assert both.engine_uids() == [(each.name, each.engine) for each in (MINE, THEIRS)]


@pytest.mark.postgres
def test_postgres_does_not_either(postgres_url: str, empty_postgres_url: str) -> None:
    alone, both = _opened(empty_postgres_url, MINE), _opened(postgres_url, MINE, THEIRS)
    for name in METHODS:
        if name not in OF_ALL:
            assert answers(both, name, MINE.name) == answers(alone, name, MINE.name), name
    for store in (alone, both):
        store.close()
