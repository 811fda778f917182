"""Attention of PyTorch by cuDNN, one file per op; found by file name."""
