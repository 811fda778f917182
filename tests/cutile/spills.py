"""Kernels whose default configuration may spill registers: (kernel, dtype, architecture or sample) → the reason."""

import torch

_THREE_PRODUCTS = "factors of float32 products are in registers as two tf32; large heads spill in every tile tried"
_OPERANDS = "operands of Ampere's products are in registers, beside the sums; large heads spill in every tile tried"

_LONG_SUMS = "sums for heads of 512 take all registers: 120 bytes spill on sm_100, up to 1,008 on sm_120, none on sm_90"

ALLOWED: dict[tuple[str, torch.dtype | str], str] = {
    ("attention_forward", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_keys", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_queries", torch.float32): _THREE_PRODUCTS,
    ("attention_forward", "sm_80"): _OPERANDS,
    ("attention_backward_keys", "sm_80"): _OPERANDS,
    ("attention_backward_queries", "sm_80"): _OPERANDS,
    ("attention_forward", "size-512"): _LONG_SUMS,
    ("attention_backward_keys", "size-512"): _LONG_SUMS,
    ("attention_backward_queries", "size-512"): _LONG_SUMS,
}
