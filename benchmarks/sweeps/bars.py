"""The cases whose speed on an H200 the project is held to, each beside what others have for it."""

import torch

from tilegym import registry
from tilegym.benchmarking.sweep import Series

ROWS = ["32768x1024", "16384x4096", "8192x8192"]
REPLAYED = {
    "softmax": ["32768x1024", "16384x4096", "8192x16384", "4096x65536", "32768x257"],
    "rms_norm": ROWS,
    "persistent_layer_norm": ROWS,
    "layer_norm_legacy": ROWS,
    "silu_and_mul": ["8192x(2*14336)"],
    "swiglu": ["8192x14336"],
    "geglu": ["8192x(2*14336)"],
    "gelu": ["8192x28672"],
    "relu": ["8192x28672"],
    "dropout": ["8192x28672"],
    "apply_rope_base": ["B4-H32/8-S4096-D128"],
    "matmul": ["16x14336x4096", "16x14336x4096-trans_b"],
    "fmha_decode": ["B16-H32/8-S8192-D128", "B16-H32/8-S1024-D128"],
    "mla_decoding_split_kv": ["B32-H16-S8192-D512+64"],
}
"""By op, names of cases among its contract's `benchmarks`: from CUDA graphs, as a launch's own time would show."""
LAUNCHED = {
    "mla": ["B4-H16-S4096-D128+64-causal"],
    "matmul": ["4096x4096x4096", "8192x8192x8192", "4096x14336x4096"],
    "bmm": ["16x2048x2048x2048"],
    "group_gemm": ["8x2048x4096x4096"],
    "fmha": [
        f"{name}{causal}"
        for name in ("B4-H32-S4096-D128", "B4-H32-S8192-D64", "B2-H16-S4096-D256")
        for causal in ("-causal", "")
    ],
}
"""Likewise, one by one with the cache overwritten in between: tensor cores without a pause reach the power limit."""


def series(op: str, names: list[str], *, graph: bool) -> Series:
    known = {sample.name: sample for sample in registry.get_op(op).contract.benchmarks()}
    return Series(op=op, dtypes=(torch.bfloat16,), samples=tuple(known[name] for name in names), graph=graph)


SWEEP = [
    *(series(op, names, graph=False) for op, names in LAUNCHED.items()),
    *(series(op, names, graph=True) for op, names in REPLAYED.items()),
]
