"""Kernels whose default configuration may spill registers: (kernel, dtype or architecture) → the reason."""

import torch

_THREE_PRODUCTS = "each factor of a float32 product is in registers as two tf32; no tile that was tried does without"
_OPERANDS = "the operands of Ampere's products are in registers, beside the sums; no tile that was tried does without"

ALLOWED: dict[tuple[str, torch.dtype | str], str] = {
    ("attention_forward", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_keys", torch.float32): _THREE_PRODUCTS,
    ("attention_backward_queries", torch.float32): _THREE_PRODUCTS,
    ("attention_forward", "sm_80"): _OPERANDS,
    ("attention_backward_keys", "sm_80"): _OPERANDS,
    ("attention_backward_queries", "sm_80"): _OPERANDS,
}
