"""`make gpu-check`: passes on a CUDA device, and says plainly where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import gpu_check


def test_our_cuda_parts_on_a_device() -> None:
    usable = [python for python in gpu_check.interpreters() if not gpu_check.why_not(python)]
    if not usable:
        pytest.skip("no CUDA device: `make gpu-check` runs these on one")
    done = subprocess.run(
        [usable[0], gpu_check.CHECKS],
        env=gpu_check.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_device_it_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, asked in (("none", "print(False)"), ("broken", "raise SystemExit('no torch here')")):
        python = tmp_path / name
        python.write_text(f"#!{sys.executable}\n{asked}\n")
        python.chmod(0o755)
        monkeypatch.setenv("GPU_PYTHON", str(python))
        assert gpu_check.main() == 0
        reason = "torch sees no CUDA device" if name == "none" else "no torch here"
        assert capsys.readouterr().out == f"gpu-check: skipped: no CUDA device ({python}: {reason})\n"
    monkeypatch.setenv("GPU_PYTHON", str(tmp_path / "absent"))
    assert gpu_check.main() == 0
    assert "absent: No such file or directory" in capsys.readouterr().out
