"""Throughput of the real engine with and without the tracer: ``python benchmarks/tracer/paired.py``.

Two SGLang servers with the tiny EAGLE-3 pair run side by side, one traced at ``steps``, one with the tracer
off, and generate the same tokens in blocks: on, off, off, on, off, on, on, off, ... (Thue-Morse: a drift of
the machine falls on both alike). While one runs the other one is idle. Two neighbouring blocks are a pair;
what is told is the difference of each pair in percent, over all pairs:

- *tokens/s*: output tokens over wall time, as the client sees it;
- *CPU*: CPU time of the engine's processes a token, which feels the rest of the machine less. The exporter, a
  process beside the engine, is in the first number and not in the second.

*detectable* is the smallest true difference that this many pairs with this scatter would have shown with
probability 0.8 in a two-sided test at 5 %. A difference that the test does not tell from 0 is *not shown*.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "engines"))

from sglang_engine import CHAIN, TREE, Server, speculation
from sink import Sink
from tiny_prompts import varied

BATCH = 8
SETTLE_S = 1.0
"""Between blocks: the exporter sends what is left of the block before."""


@dataclass(frozen=True)
class Block:
    """One side's run over all prompts."""

    tokens: int
    wall_s: float
    cpu_s: float
    outputs: list[list[int]]


def cpu_s(session: int) -> float:
    """CPU seconds so far of the processes of a session."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def block(server: Server, number: int, prompts: list[list[int]], new_tokens: int) -> Block:
    sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
    outputs: list[list[int]] = []
    used, began = cpu_s(server.pid), time.monotonic()
    for at in range(0, len(prompts), BATCH):
        batch = prompts[at : at + BATCH]
        rids = [f"block-{number}-{at + index}" for index in range(len(batch))]
        body: dict[str, Any] = {"rid": rids, "input_ids": batch, "sampling_params": sampling}
        outputs += [answer["output_ids"] for answer in server.post("/generate", body)]
    wall, cpu = time.monotonic() - began, cpu_s(server.pid) - used
    return Block(sum(len(one) for one in outputs), wall, cpu, outputs)


def t_quantile(p: float, degrees: int) -> float:
    """Student's t, by its expansion in 1 / degrees; off by less than 0.01 from 8 degrees on."""
    z = statistics.NormalDist().inv_cdf(p)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def told(name: str, differences: list[float]) -> str:
    """One row of the table."""
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = t_quantile(0.975, len(differences) - 1) * error
    detectable = (1.96 + 0.84) * error
    if abs(mean) <= half:
        verdict = "not shown"
    elif abs(mean) < detectable:
        verdict = "not shown: below what this run detects"
    else:
        verdict = "lower with the tracer" if mean < 0 else "higher with the tracer"
    middle = statistics.median(differences)
    return (
        f"| {name} | {mean:+.2f} % | {mean - half:+.2f} … {mean + half:+.2f} % | {middle:+.2f} % "
        f"| {detectable:.2f} % | {verdict} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=16, help="in a block, 8 at a time, of at most 36")
    parser.add_argument("--tokens", type=int, default=96, help="output tokens of each")
    parser.add_argument("--tree", action="store_true", help="trees of 16 nodes instead of chains of 4")
    parser.add_argument("--detail", default="steps")
    given = parser.parse_args()
    prompts = [prompt for _, prompt in varied()][: given.prompts]
    arguments = speculation(TREE if given.tree else CHAIN)
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, Sink(opened=False) as sink:
        on_folder, off_folder = Path(folder, "on"), Path(folder, "off")
        on_folder.mkdir()
        off_folder.mkdir()
        traced = {"SPECSCOPE_ENDPOINT": sink.endpoint, "SPECSCOPE_DETAIL": given.detail}
        with (
            Server(on_folder, arguments, traced) as on,
            Server(off_folder, arguments, {"SPECSCOPE_OFF": "1"}) as off,
        ):
            for server in (on, off):  # caches warm, prefixes known
                block(server, -1, prompts, given.tokens)
            found: dict[bool, list[Block]] = {True: [], False: []}
            for number in range(2 * given.pairs):
                traced_now = number.bit_count() % 2 == 0
                time.sleep(SETTLE_S)
                found[traced_now].append(block(on if traced_now else off, number, prompts, given.tokens))
            ours = on.ours()
    pairs = list(zip(found[True], found[False], strict=True))
    if any(a.outputs != b.outputs for a, b in pairs):
        sys.exit("the tokens with and without the tracer differ")
    rate = [statistics.median(one.tokens / one.wall_s for one in found[side]) for side in (True, False)]
    print(f"{len(pairs)} pairs of {pairs[0][0].tokens} tokens, the same ones with and without the tracer;")
    print(f"median {rate[0]:.0f} tokens/s with it, {rate[1]:.0f} without\n")
    print("| | mean difference | 95 % interval | median | detectable | verdict |\n|---|---|---|---|---|---|")
    print(told("tokens/s", [100 * ((a.tokens / a.wall_s) / (b.tokens / b.wall_s) - 1) for a, b in pairs]))
    print(told("CPU a token", [100 * ((a.cpu_s / a.tokens) / (b.cpu_s / b.tokens) - 1) for a, b in pairs]))
    print(f"load {os.getloadavg()[0]:.1f}")
    for line in ours:
        print(line)


if __name__ == "__main__":
    main()
