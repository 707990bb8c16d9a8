"""Tests that share an engine of the session are dealt to one worker: two would start it twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from streams import TOGETHER

ROOT = Path(__file__).parents[2]
ENGINES = ROOT / "tests" / "engines"


def functions(module: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node


def as_fixture(one: ast.FunctionDef) -> str:
    """The decorator that makes a function a fixture; empty where there is none."""
    written = [ast.unparse(decorator) for decorator in one.decorator_list]
    return next((text for text in written if text.startswith("pytest.fixture")), "")


def of_the_session() -> set[str]:
    """The fixtures that are made once a session, by name."""
    return {one.name for one in functions(ENGINES / "conftest.py") if "scope='session'" in as_fixture(one)}


def users(fixtures: set[str]) -> set[str]:
    """The modules with a test or a fixture that takes one of ``fixtures``."""
    return {
        str(module.relative_to(ROOT))
        for module in ENGINES.glob("test_*.py")
        for one in functions(module)
        if one.name.startswith("test_") or as_fixture(one)
        if fixtures & {argument.arg for argument in one.args.args}
    }


def test_modules_that_share_an_engine_are_dealt_together() -> None:
    fixtures = of_the_session()
    assert "chain" in fixtures
    assert users(fixtures) == set(TOGETHER), "tests/streams.py must name the modules that use these"
    assert len(set(TOGETHER.values())) == 1
