"""Checks of our own CUDA parts on a CUDA device: kernels, ring, and buffers inside graphs. No engine.

Needs torch, Triton and numpy; run by ``python3 -m scripts.gpu_check`` (`make gpu-check`), which finds an
interpreter that has them. Says what it checked and measured; ends with 1 where a check failed, and with 0 and
*skipped* where there is no device.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

torch: Any = importlib.import_module("torch")

ROWS, SLOTS, WIDTH = 64, 3, 7168
REPLAYS = 1000
SHAPES = ((64, 3, 7168), (9, 1, 300), (4100, 3, 512), (16, 1, 16384))
"""Of rows, slots and width: powers of two and others, one row a program and several."""
DTYPES = ("bfloat16", "float16", "float32")
MEAN, VARIANCE, PROJECTION = 1e-5, 1e-4, 1e-4
"""As docs/reference/fingerprint.md states: of the rms, relative, of the rms."""


def odd_rows(n: int, slots: int, width: int, dtype: Any) -> Any:
    """Rows of everything: equal ones, zeros, values that are not finite."""
    rows = (torch.randn(n, slots * width, device="cuda") * 3 + 2).to(dtype)
    if n > 8:
        rows[2] = rows[1]
        rows[3, :width] = 0
        rows[5, 0] = float("nan")
        rows[5, -1] = float("inf")
        rows[6, :width] = float("nan")
        rows[7] = rows[6]
    return rows


def kernels_agree_with_torch() -> None:
    """Triton against torch, in host memory, for each dtype and many shapes."""
    from specscope import tensorstats, tensorstats_host

    for dtype, (n, slots, width) in itertools.product(DTYPES, SHAPES):
        rows = odd_rows(n, slots, width, getattr(torch, dtype))
        # Each new width or alignment is compiled, which takes longer than all else here.
        views = [rows, rows[::3], rows[n:]] + ([rows[:, :-slots]] if width < 512 else [])
        for given, projections in itertools.product(views, (False, True)):
            found = tensorstats.reduce(given, slots, projections=projections).cpu().double()
            expected = torch.empty(found.shape)
            if len(given):
                tensorstats_host.reduce(given.cpu(), expected)
            close(found, expected.double(), f"{dtype} {list(given.shape)}")


def close(found: Any, expected: Any, where: str) -> None:
    rms = (expected[..., 0] ** 2 + expected[..., 1]).sqrt()
    apart = (found - expected).abs()
    assert bool((apart[..., 0] <= 2 * MEAN * rms).all()), f"{where}: mean"
    assert bool((apart[..., 1] <= 2 * VARIANCE * expected[..., 1] + 1e-44).all()), f"{where}: variance"
    assert torch.equal(found[..., 2:6], expected[..., 2:6]), f"{where}: max_abs, counts or flags"
    assert bool((apart[..., 6:] <= 2 * PROJECTION * rms[..., None]).all()), f"{where}: projections"


def requests_are_combined_as_by_torch() -> None:
    """The second kernel, from numbers of the host and of the device."""
    from specscope import tensorstats, tensorstats_host

    rows = odd_rows(700, SLOTS, 256, torch.bfloat16)
    found = tensorstats.reduce(rows, SLOTS, projections=True)
    starts, counts = [10, 0, 200, 690, 5], [190, 3, 480, 0, 1]
    expected = tensorstats_host.combine(found.cpu(), starts, counts)
    for numbers in ((starts, counts), [torch.tensor(n, device="cuda") for n in (starts, counts)]):
        combined = tensorstats.combine(found, *numbers).cpu()
        assert torch.allclose(combined, expected, rtol=1e-4, atol=1e-5), (combined - expected).abs().max()


def replays_leave_fresh_numbers() -> None:
    """1,000 replays of two graphs of one pool, a side stream that lags: the eager numbers each time."""
    from specscope import tensorstats
    from specscope.copies import LOOKS, Copies
    from specscope.static_stats import StaticStats

    missed: Counter[str] = Counter()
    static, copies = StaticStats(missed), Copies(missed, LOOKS)
    inputs = [odd_rows(ROWS, SLOTS, WIDTH, torch.bfloat16) * (1 + k) for k in range(7)]
    fed, single = torch.empty_like(inputs[0]), torch.empty_like(inputs[0][:, :WIDTH])
    graphs: dict[int, Any] = {}
    pool: Any = None
    for count in (ROWS, ROWS // 2):  # as engines capture them: the largest first, one pool

        def forward(graph: int) -> Any:
            made = fed[:graph] * 2
            static.record(graph, "fed", made, SLOTS, projections=True)
            single[:graph] = made[:, :WIDTH] + 1
            static.record(graph, "fc", single[:graph], 1, projections=True)
            return made

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                forward(count)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        static.begin(count)
        with torch.cuda.graph(graph, pool=pool):
            forward(count)
        graphs[count], pool = graph, graph.pool()
    assert not missed, missed
    # The first copy makes the ring, which may wait for the device.
    first = copies.start([torch.zeros(1, device="cuda")], [1])
    torch.cuda.synchronize()
    assert first is not None
    assert first.ready() is not None

    under_way: deque[tuple[Any, list[Any], int]] = deque()
    told: list[tuple[list[bytes], list[Any]]] = []
    ahead = 0

    def take(*, until: int) -> None:
        while len(under_way) > until:
            copy, expected, _ = under_way[0]
            if not copy.arrived():
                time.sleep(1e-4)
                continue
            under_way.popleft()
            told.append(([part.data for part in copy.ready()], expected))

    torch.cuda.set_sync_debug_mode("error")
    try:
        for k in range(REPLAYS):
            count = (ROWS, ROWS // 2)[k % 3 == 0]
            wanted = count - k % 5
            fed.copy_(inputs[k % len(inputs)])
            fed[k % ROWS] += k  # never the same twice
            graphs[count].replay()
            looks = static.read(count, wanted)
            assert [look.place for look in looks] == ["fed", "fc"]
            eager = fed[:count] * 2
            expected = [
                tensorstats.reduce(eager, SLOTS, projections=True)[:wanted],
                tensorstats.reduce(eager[:, :WIDTH] + 1, 1, projections=True)[:wanted],
            ]
            with torch.cuda.stream(copies.stream):
                torch.cuda._sleep(2_000_000)  # some 1 ms: the copy is behind the next replays
            copy = copies.start([look.found for look in looks], [14, 14])
            assert copy is not None, missed
            under_way.append((copy, expected, k))
            ahead += not copy.arrived()
            take(until=LOOKS.slots - 1)
        take(until=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(told) == REPLAYS
    assert ahead > REPLAYS // 2, f"the side stream was behind only {ahead} times: nothing was shown"
    for k, (parts, expected) in enumerate(told):
        for data, numbers in zip(parts, expected, strict=True):
            assert data == numbers.cpu().numpy().tobytes(), f"replay {k}"
    print(f"    {REPLAYS} replays, {ahead} of them with the copy still under way; missed: {dict(missed)}")


def nothing_waits() -> None:
    """Every call that an engine's thread makes, under torch's own guard against synchronisation."""
    from specscope import tensorstats
    from specscope.copies import LOOKS, Copies

    missed: Counter[str] = Counter()
    copies = Copies(missed, LOOKS)
    rows = odd_rows(ROWS, SLOTS, WIDTH, torch.bfloat16)
    done = torch.cuda.Event()
    # Kernels are loaded and memory is pinned the first time, which may wait.
    found = tensorstats.reduce(rows, SLOTS, projections=True)
    combined = tensorstats.combine(found, [0, 10], [10, ROWS - 10])
    first = copies.start([found, combined], [14, 7])
    torch.cuda.synchronize()
    assert first is not None
    assert first.ready() is not None
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(100_000_000)  # some 50 ms
        done.record()
        found = tensorstats.reduce(rows, SLOTS, projections=True)
        combined = tensorstats.combine(found, [0, 10], [10, ROWS - 10])
        copy = copies.start([found, combined], [14, 7])
        # Whatever waits although torch does not know of it would have waited for the sleep.
        assert not done.query(), "something waited for the device"
        assert copy is not None
        assert copy.ready() is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    parts = copy.ready()
    assert parts is not None
    assert parts[0].data == found.cpu().numpy().tobytes()


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the device's time of one call, launched from a graph so that no launch is timed."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    times: list[float] = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / repeats)
    return sorted(times)[2]


def memory_rate() -> float:
    """Return the bytes a second that copying a large piece of memory reads and writes."""
    large = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(large)
    return 2 * large.numel() / seconds(lambda: into.copy_(large), 20)


def the_time_it_takes() -> None:
    """Added time against the time that the memory takes to be read once; told, not judged."""
    from specscope import tensorstats

    rate = memory_rate()
    print(f"    memory: {rate / 1e12:.2f} TB/s, copying 512 MiB")
    for n in (64, 4096):
        # Enough different rows that the cache has forgotten those of last time.
        each = n * SLOTS * WIDTH * 2
        many = max(1, (1 << 29) // each)
        rows = [torch.randn(n, SLOTS * WIDTH, device="cuda").bfloat16() for _ in range(min(many, 32))]
        for projections in (False, True):
            out = tensorstats.reduce(rows[0], SLOTS, projections=projections)
            turn = itertools.cycle(rows)

            def call(turn: Any = turn, out: Any = out, projections: bool = projections) -> None:
                tensorstats.reduce(next(turn), SLOTS, projections=projections, out=out)

            took, least = seconds(call, 64 if n == 64 else 32), each / rate
            began = time.perf_counter()
            for _ in range(100):
                call()
            host = (time.perf_counter() - began) / 100
            torch.cuda.synchronize()
            print(
                f"    [{n}, {SLOTS} x {WIDTH}] bfloat16, {out.shape[-1]} columns: {took * 1e6:.1f} us on the "
                f"device, {took / least:.2f} times the {least * 1e6:.1f} us of reading it once; "
                f"{host * 1e6:.0f} us on the engine's thread"
            )


CHECKS = (
    kernels_agree_with_torch,
    requests_are_combined_as_by_torch,
    replays_leave_fresh_numbers,
    nothing_waits,
    the_time_it_takes,
)


def main() -> int:
    if not torch.cuda.is_available():
        print(f"skipped: no CUDA device for torch {torch.__version__}")
        return 0
    triton: Any = importlib.import_module("triton")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    torch.manual_seed(7)
    failed = 0
    for check in CHECKS:
        began = time.perf_counter()
        print(f"{check.__name__}: {(check.__doc__ or '').splitlines()[0]}", flush=True)
        try:
            check()
        except Exception:
            failed += 1
            traceback.print_exc(file=sys.stdout)
        print(f"    {time.perf_counter() - began:.1f} s", flush=True)
    print(f"{failed} of {len(CHECKS)} checks failed" if failed else f"all {len(CHECKS)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
