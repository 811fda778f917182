"""Attention of PyTorch by FlashAttention, one file per op; found by file name."""
