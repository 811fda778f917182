"""Attention over 16,384 tokens, in sequences of 512 to all of them, forward and (`--backward`) backward, beside SDPA.

Heads times head size is 4,096 in all cases. One is named by batch, heads of queries / of keys, length and head size.
"""

import torch

from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

TOKENS, WIDTH = 16384, 4096
LENGTHS = [2**exponent for exponent in range(9, 15)]
SIZES = (64, 128, 256)
KINDS = [(8, True), (4, True), (1, True), (1, False)]
"""Heads of queries for one of keys; whether it is causal."""


def attention(batch: int, heads: int, length: int, size: int, group: int, is_causal: bool) -> Sample:
    shape, shape_of_keys = (batch, heads, length, size), (batch, heads // group, length, size)
    of = f"H{heads}" if group == 1 else f"H{heads}/{heads // group}"
    args = {"q": TensorSpec(shape=shape), "k": TensorSpec(shape=shape_of_keys), "v": TensorSpec(shape=shape_of_keys)}
    name = f"B{batch}-{of}-S{length}-D{size}-{'causal' if is_causal else 'full'}"
    return Sample(name=name, args={**args, "is_causal": is_causal})


SWEEP = [
    Series(
        op="fmha",
        dtypes=(torch.bfloat16,),
        samples=tuple(
            attention(TOKENS // length, WIDTH // size, length, size, group, is_causal)
            for length in LENGTHS
            for size in SIZES
            for group, is_causal in KINDS
        ),
    ),
]
