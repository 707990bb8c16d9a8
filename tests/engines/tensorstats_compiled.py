"""Checks of what Triton's compiler makes of our kernels for an H200, which needs none.

Run by ``test_tensorstats_in_torch.py``. Triton's interpreter takes much that its compiler does not. Prints a
JSON object: the traceback of each check, empty where it passed.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as it is by default; unset, it warns

from check_report import report
from specscope import tensorstats_triton as kernels

compiler: Any = importlib.import_module("triton.compiler")
target: Any = importlib.import_module("triton.backends.compiler")
tl: Any = importlib.import_module("triton.language")


def compiled(kernel: Any, pointers: dict[str, str], numbers: dict[str, str], fixed: dict[str, Any]) -> Any:
    """Compile for sm_90, as a launch with pointers and strides at multiples of 16 does."""
    names: list[str] = kernel.arg_names
    signature = {**pointers, **numbers, **dict.fromkeys(fixed, "constexpr")}
    source = compiler.ASTSource(
        fn=kernel,
        signature={name: signature[name] for name in names},
        constexprs={(names.index(name),): value for name, value in fixed.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]]
            for name in names
            if name in pointers or name == "apart"
        },
    )
    return compiler.compile(source, target=target.GPUTarget("cuda", 90, 32), options={"num_warps": 8})


def the_reduction_compiles_and_reads_16_bytes_at_a_time() -> None:
    for dtype, whole, loads in (("bf16", tl.int16, 8), ("fp32", tl.int32, 16)):
        made = compiled(
            kernels.reduce_kernel,
            {"rows": f"*{dtype}", "found": "*fp32"},
            {"apart": "i32", "n": "i32", "each": "i32", "root": "fp32"},
            {"slots": 3, "width": 7168, "block": 8192, "whole": whole, "columns": 14},
        )
        # 8192 values of two rows, that before and the row itself, on 256 threads: nothing is read twice.
        assert re.findall(r"ld\.global\S*", made.asm["ptx"]) == ["ld.global.v4.b32"] * loads, dtype
        assert made.asm["cubin"]


def the_combination_compiles() -> None:
    made = compiled(
        kernels.combine_kernel,
        {"found": "*fp32", "starts": "*i64", "counts": "*i64", "into": "*fp32"},
        {},
        {"slots": 3, "columns": 14, "block": 128},
    )
    assert made.asm["cubin"]


CHECKS = [
    the_reduction_compiles_and_reads_16_bytes_at_a_time,
    the_combination_compiles,
]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="specscope-triton-") as cache:
        os.environ["TRITON_CACHE_DIR"] = cache  # compiled here and now
        report(CHECKS)
