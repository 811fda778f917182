"""Attention of one query over 1,024 to 32,768 keys, beside SDPA and, in GB/s, the device's copy.

A case is named by batch, heads of queries / of keys, keys and head size.
"""

import torch

from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

KEYS = [2**exponent for exponent in range(10, 16)]


def decode(batch: int, heads: int, kv_heads: int, keys: int, size: int) -> Sample:
    shape_of_keys = (batch, kv_heads, keys, size)
    args = {
        "q": TensorSpec(shape=(batch, heads, 1, size)),
        "k": TensorSpec(shape=shape_of_keys),
        "v": TensorSpec(shape=shape_of_keys),
        "sm_scale": None,
    }
    return Sample(name=f"B{batch}-H{heads}/{kv_heads}-S{keys}-D{size}", args=args)


def latent(batch: int, heads: int, keys: int) -> Sample:
    args = {
        "q": TensorSpec(shape=(batch, heads, 512)),
        "qpe": TensorSpec(shape=(batch, heads, 64)),
        "kv": TensorSpec(shape=(batch, keys, 512)),
        "kpe": TensorSpec(shape=(batch, keys, 64)),
    }
    return Sample(name=f"B{batch}-H{heads}-S{keys}-D512+64", args=args)


SHARED = [decode(batch, 32, 8, keys, 128) for batch in (1, 16, 64) for keys in KEYS]
OTHERS = [
    decode(16, heads, kv_heads, 8192, size) for heads, kv_heads, size in [(32, 32, 128), (64, 8, 64), (8, 1, 256)]
]
LATENT = [latent(batch, heads, keys) for batch, heads in [(1, 16), (32, 16), (32, 128)] for keys in KEYS]

SWEEP = [
    Series(op="fmha_decode", dtypes=(torch.bfloat16,), samples=(*SHARED, *OTHERS), graph=True),
    Series(op="mla_decoding_split_kv", dtypes=(torch.bfloat16,), samples=tuple(LATENT), graph=True),
]
