"""Where SGLang's CPU path cannot run, that is said exactly, with what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import sglang_env
from scripts.sglang_env import FREE_BYTES, PYTHON_VERSIONS, RECIPE, Machine, fingerprint, problems
from scripts.system import ROOT

GOOD = Machine("Linux", "x86_64", (2, 36), (3, 11), 20 * 10**9)


def test_a_debian_12_qualifies() -> None:
    assert problems(GOOD) == []
    assert problems(replace(GOOD, glibc=(2, 34), free_bytes=FREE_BYTES)) == []
    assert problems(replace(GOOD, free_bytes=None)) == []  # built already: nothing more to unpack


@pytest.mark.parametrize(
    ("machine", "said", "advice"),
    [
        (
            replace(GOOD, architecture="aarch64"),
            "needs an x86-64 processor and this one is aarch64",
            "x86-64 machine",
        ),
        (replace(GOOD, glibc=(2, 31)), "glibc is 2.31 and SGLang needs 2.34 or newer", "Ubuntu 22.04"),
        (replace(GOOD, glibc=None), "The C library is not glibc", "Debian 12"),
        (
            replace(GOOD, python=(3, 14)),
            "Python is 3.14 and the recipe's packages exist for 3.11",
            "PYTHON=python3.11",
        ),
        (replace(GOOD, python=(3, 10)), "Python is 3.10", "PYTHON=python3.11"),
        (replace(GOOD, free_bytes=10**9), "1.0 GB are free", "make room"),
        (
            Machine("Darwin", "x86_64", None, (3, 11), None),
            "runs on Linux and this is Darwin",
            "Linux machine",
        ),
    ],
)
def test_each_obstacle_is_named_with_what_to_do(machine: Machine, said: str, advice: str) -> None:
    (problem,) = problems(machine)
    assert said in problem
    assert advice in problem


def test_every_obstacle_is_named_at_once() -> None:
    assert len(problems(Machine("Darwin", "arm64", None, (3, 9), 1))) == 4


def test_the_oldest_supported_python_is_the_projects_own() -> None:
    assert min(PYTHON_VERSIONS) == (3, 11)


def test_the_machine_that_runs_the_engine_tests_qualifies() -> None:
    command = [sys.executable, "-m", "scripts.sglang_env", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "can run on this machine" in done.stdout


def test_a_machine_that_cannot_run_it_is_told_what_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert sglang_env.main(["--check", "--environment", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "this one is riscv64" in said
    assert "Everything else works here" in said


def test_every_pin_of_the_recipe_is_exact() -> None:
    lines = [
        line
        for file in sorted(RECIPE.glob("requirements*.txt"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert len(lines) > 40
    assert [line for line in lines if "==" not in line] == []


def test_a_changed_recipe_is_noticed_and_a_changed_note_is_not(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    shutil.copytree(RECIPE, recipe)
    before = fingerprint(recipe)
    assert before == fingerprint(RECIPE)
    (recipe / "README.md").write_text("reworded", encoding="utf-8")
    assert fingerprint(recipe) == before
    pins = recipe / "requirements.txt"
    pins.write_text(
        pins.read_text(encoding="utf-8").replace("numpy==2.4.6", "numpy==2.4.7"), encoding="utf-8"
    )
    assert fingerprint(recipe) != before
    shutil.copy(RECIPE / "requirements.txt", pins)
    (recipe / "shim" / "src" / "sglang_cpu_shim.py").rename(recipe / "shim" / "src" / "renamed.py")
    assert fingerprint(recipe) != before
