"""Who may import whom. The arrows are those of docs/architecture.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "specscope": ROOT / "tracer" / "specscope",
    "specscope_server": ROOT / "backend" / "specscope_server",
    "specscope_frontend": ROOT / "frontend" / "specscope_frontend",
    "specscope_migrations": ROOT / "migrations" / "specscope_migrations",
}
# What the backend may take from the tracer: definitions of the wire, never the machinery.
SHARED = {
    "convention", "columns", "chunks", "hidden", "hidden_rollup", "packed_rows", "identity", "clock",
    "ledger", "rollup", "records", "reference_file", "tokenizer_facts", "version",
}  # fmt: skip
HEAVY = {"torch", "sglang", "vllm", "transformers", "triton"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each imported module's dotted name, and whether the import runs when the module is loaded."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in top


def modules(room: str) -> list[Path]:
    return sorted(ROOMS[room].rglob("*.py"))


def all_imports(room: str) -> list[tuple[Path, str, bool]]:
    return [(path, name, top) for path in modules(room) for name, top in imports(path)]


def test_rooms_exist() -> None:
    assert all(len(modules(room)) >= 1 for room in ROOMS)


def test_tracer_imports_no_other_room() -> None:
    others = tuple(set(ROOMS) - {"specscope"})
    bad = [f"{p.relative_to(ROOT)}: {n}" for p, n, _ in all_imports("specscope") if n.split(".")[0] in others]
    assert not bad


def test_tracer_loads_no_engine_or_torch() -> None:
    bad = [
        f"{p.relative_to(ROOT)}: {n}"
        for p, n, top in all_imports("specscope")
        if top and n.split(".")[0] in HEAVY
    ]
    assert not bad


@pytest.mark.parametrize("room", ["specscope_frontend", "specscope_migrations"])
def test_leaf_rooms_import_no_other_room(room: str) -> None:
    others = set(ROOMS) - {room}
    if room == "specscope_migrations":
        others -= {"specscope_server"}  # env.py compares with the metadata it migrates towards
    bad = [f"{p.relative_to(ROOT)}: {n}" for p, n, _ in all_imports(room) if n.split(".")[0] in others]
    assert not bad


def test_backend_takes_only_definitions_from_the_tracer() -> None:
    bad: list[str] = []
    for path, name, _ in all_imports("specscope_server"):
        parts = name.split(".")
        if parts[0] == "specscope" and (len(parts) < 2 or parts[1] not in SHARED | {"__version__"}):
            bad.append(f"{path.relative_to(ROOT)}: {name}")
    assert not bad


def test_diagnosis_does_no_io() -> None:
    banned = {"sqlalchemy", "httpx", "asyncio", "os", "pathlib", "socket", "time", "logging", "fastapi"}
    bad = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOMS["specscope_server"] / "diagnosis").glob("*.py")
        for name, _ in imports(path)
        if name.split(".")[0] in banned
    ]
    assert not bad


def test_nothing_engine_specific_leaves_the_adapters() -> None:
    neutral = [p for p in modules("specscope") if "engines" not in p.parts]
    bad = [
        f"{p.relative_to(ROOT)}: {name}"
        for p in neutral
        for name, _ in imports(p)
        if name.split(".")[0] in {"sglang", "vllm"}
    ]
    assert not bad
