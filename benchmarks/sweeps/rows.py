"""Row ops at widths that models have, powers of two and others, of many rows and of few.

A case is named by rows and columns.
"""

import torch

from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

MANY = [(8192, n) for n in (1000, 1536, 2048, 3072, 5120, 7168, 14336)]
FEW = [(m, 4096) for m in (1, 8, 64)]
VOCABULARIES = [(2048, n) for n in (32000, 50257, 128256)]


def elementwise(m: int, n: int, *names: str) -> Sample:
    return Sample(name=f"{m}x{n}", args={name: TensorSpec(shape=(m, n)) for name in names})


def norm(m: int, n: int, *parameters: str) -> Sample:
    args = {"input": TensorSpec(shape=(m, n)), "normalized_shape": (n,), "eps": 1e-6}
    return Sample(name=f"{m}x{n}", args=args | {name: TensorSpec(shape=(n,)) for name in parameters})


CASES = {
    "softmax": [elementwise(*size, "x") for size in (*MANY, *VOCABULARIES, *FEW)],
    "rms_norm": [norm(*size, "weight") for size in (*MANY, *FEW)],
    "layer_norm_legacy": [norm(*size, "weight", "bias") for size in (*MANY, *FEW)],
    "swiglu": [elementwise(*size, "a", "b") for size in (*MANY, *FEW)],
}

SWEEP = [Series(op=op, dtypes=(torch.bfloat16,), samples=tuple(samples), graph=True) for op, samples in CASES.items()]
