"""Matrix products of transformers, beside cuBLAS: 40 shapes in three dtypes. A case is named MxNxK.

Weights are (N, K), as nn.Linear has them, but in two layers; in float8 in all, since cuBLAS takes no others.
"""

import torch

from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

FEW_TO_MANY = ((1, 16, 128, 1024, 8192), (4, 64, 256, 2048, 16384))
"""M: tokens that are decoded, or those of prompts; layers take either in turn."""
LAYERS = {
    (6144, 4096): True,  # q, k and v of a model with 8 billion parameters, and its other layers
    (4096, 4096): True,
    (28672, 4096): True,
    (4096, 14336): True,
    (10240, 8192): True,  # of 70 billion: q, k and v; what leads down
    (8192, 28672): False,
    (3072, 1024): True,  # of less than one
    (1024, 4096): False,
}
"""(N, K) → whether the weight is (N, K)."""
SHAPES = [(m, n, k, trans_b) for at, ((n, k), trans_b) in enumerate(LAYERS.items()) for m in FEW_TO_MANY[at % 2]]


def linear(m: int, n: int, k: int, trans_b: bool, **more: torch.dtype) -> Sample:
    args = {"a": TensorSpec(shape=(m, k)), "b": TensorSpec(shape=(n, k) if trans_b else (k, n)), "trans_b": trans_b}
    return Sample(name=f"{m}x{n}x{k}{'' if trans_b else '-untransposed'}", args={**args, **more})


SWEEP = [
    Series(
        op="matmul",
        dtypes=(torch.bfloat16, torch.float16),
        samples=tuple(linear(*shape) for shape in SHAPES),
        graph=True,
    ),
    Series(
        op="matmul",
        dtypes=(torch.float8_e4m3fn,),
        samples=tuple(linear(m, n, k, trans_b=True, out_dtype=torch.bfloat16) for m, n, k, _ in SHAPES),
        graph=True,
    ),
]
