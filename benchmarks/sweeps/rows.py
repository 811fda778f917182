"""Row ops at widths that models have, powers of two and others, of many rows and of few."""

import torch

from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

MANY = [(8192, n) for n in (1000, 1536, 2048, 3072, 5120, 7168, 14336)]
FEW = [(m, 4096) for m in (1, 8, 64)]
VOCABULARIES = [(2048, n) for n in (32000, 50257, 128256)]


def elementwise(m: int, n: int, *names: str) -> Sample:
    return Sample(name=f"{m}x{n}", args={name: TensorSpec(shape=(m, n)) for name in names})


def halves(m: int, n: int) -> Sample:
    return Sample(name=f"{m}x(2*{n})", args={"input": TensorSpec(shape=(m, 2 * n))})


def rope(length: int) -> Sample:
    """A model's 32 heads of queries and 8 of keys; cos and sin for as many positions."""
    heads = {"q": TensorSpec(shape=(1, 32, length, 128)), "k": TensorSpec(shape=(1, 8, length, 128))}
    tables = {name: TensorSpec(shape=(length, 128)) for name in ("cos", "sin")}
    return Sample(name=f"H32/8-S{length}-D128", args={**heads, **tables})


def norm(m: int, n: int, *parameters: str) -> Sample:
    args = {"input": TensorSpec(shape=(m, n)), "normalized_shape": (n,), "eps": 1e-6}
    return Sample(name=f"{m}x{n}", args=args | {name: TensorSpec(shape=(n,)) for name in parameters})


CASES = {
    "softmax": [elementwise(*size, "x") for size in (*MANY, *VOCABULARIES, *FEW)],
    "rms_norm": [norm(*size, "weight") for size in (*MANY, *FEW)],
    "layer_norm_legacy": [norm(*size, "weight", "bias") for size in (*MANY, *FEW)],
    "swiglu": [elementwise(*size, "a", "b") for size in (*MANY, (16384, 4096), *FEW)],
    "silu_and_mul": [halves(*size) for size in FEW],
    "geglu": [halves(*size) for size in ((16384, 4096), *FEW)],
    "gelu": [elementwise(*size, "input") for size in FEW],
    "relu": [elementwise(*size, "x") for size in FEW],
    "apply_rope_base": [rope(m) for m, _ in FEW],
}

SWEEP = [Series(op=op, dtypes=(torch.bfloat16,), samples=tuple(samples), graph=True) for op, samples in CASES.items()]
