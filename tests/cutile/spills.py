"""Kernels whose default configuration may spill registers: (kernel, dtype) → the reason."""

import torch

_THREE_PRODUCTS = "each factor of a float32 product is in registers as two tf32"

ALLOWED: dict[tuple[str, torch.dtype], str] = {
    ("attention_forward", torch.float32): _THREE_PRODUCTS,
    ("attention_forward_wide", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_keys", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_keys_wide", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_queries", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_queries_wide", torch.float32): _THREE_PRODUCTS,
}
