"""What the engine does not copy reaches the host without waiting for the device."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sglang_engine import sglang_python

pytestmark = pytest.mark.engine

HOST = """
import torch
from collections import Counter
from specscope.copies import Copies

copies = Copies(Counter())
tokens, tree = torch.arange(6).view(2, 3), torch.arange(6, dtype=torch.int32).view(2, 3)
one = copies.start([tokens, tree], [3, 3])
tokens.zero_(); tree.zero_()  # the engine goes on with its buffers
assert one.blocks() == [
    (torch.arange(6).numpy().tobytes(), 8, 3),
    (torch.arange(6, dtype=torch.int32).numpy().tobytes(), 4, 3),
]
assert copies.start([torch.empty(3, device="meta")], [3]) is None  # a device that cannot be copied from
assert not copies.missed
print("checked")
"""

DEVICE = """
import torch
from collections import Counter
from specscope import copies as module
from specscope.copies import Copies

if not torch.cuda.is_available():
    raise SystemExit("no CUDA device")
copies = Copies(Counter())
busy = torch.randn(8192, 8192, device="cuda")
tokens = torch.arange(6, device="cuda").view(2, 3)
torch.cuda.synchronize()
for _ in range(20):
    busy = busy @ busy / 100
made = tokens + busy[0, 0].long() * 0
one = copies.start([made], [3])
assert one.block() is None and copies.missed == {module.LATE: 1}, "the device is not done, and nobody waited"
made.zero_()
torch.cuda.synchronize()
assert one.block() == (torch.arange(6).numpy().tobytes(), 8, 3), "copied before the engine went on"
# Copies nobody reads give their slots back when they have arrived.
for _ in range(3 * module.STEPS.slots):
    assert copies.start([tokens], [3]) is not None
    torch.cuda.synchronize()
assert copies.missed[module.REFUSED] == 0
assert copies.start([torch.zeros(module.STEPS.slot_bytes, device="cuda", dtype=torch.int64)], [1]) is None
assert copies.missed[module.REFUSED] == 1
# Nothing is done while a graph is captured.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    inside = tokens * 2
    assert copies.start([inside], [3]) is None
print("checked")
"""


def run(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "check.py"
    file.write_text(script)
    return subprocess.run([sglang_python(), file], capture_output=True, text=True, check=False)


def test_host_tensors_are_copied_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, HOST)
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr


def test_device_tensors_arrive_without_waiting(tmp_path: Path) -> None:
    done = run(tmp_path, DEVICE)
    if "no CUDA device" in done.stderr:
        pytest.skip("there is no CUDA device here")
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr
