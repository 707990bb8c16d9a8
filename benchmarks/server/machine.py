"""What processes used: CPU seconds and bytes written, from ``/proc``; and what a sync to this disk takes."""

from __future__ import annotations

import os
import platform
import statistics
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def line() -> str:
    """The machine, its load and the time, as one line for a table's heading."""
    model = next(
        (
            text.partition(":")[2].strip()
            for text in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if text.startswith("model name")
        ),
        platform.machine(),
    )
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    load, python = os.getloadavg()[0], platform.python_version()
    return f"{when}, {os.cpu_count()} CPUs ({model}), load {load:.1f}, Python {python}"


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()


def family(pid: int) -> list[int]:
    """A process and everything that it started, as far as it still runs."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents.setdefault(int(_stat(int(place.name))[1]), []).append(int(place.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, of what it started, and of what has ended of that."""
    total = 0
    for one in family(pid):
        with suppress(OSError):
            fields = _stat(one)
            total += sum(map(int, fields[11:15] if one == pid else fields[11:13]))
    return total / TICKS


def written(pid: int) -> int:
    """Bytes that a process and what it started sent to the disk."""
    total = 0
    for one in family(pid):
        with suppress(OSError):
            text = Path(f"/proc/{one}/io").read_text("utf-8")
            total += int(text.partition("\nwrite_bytes:")[2].split()[0])
    return total


def sync_ms(folder: Path, size: int = 500_000, times: int = 40) -> float:
    """Median milliseconds of a write of ``size`` bytes with a sync, as at each commit."""
    data, took = os.urandom(size), list[float]()
    path = folder / "sync"
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(data)
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    path.unlink()
    return statistics.median(took)
