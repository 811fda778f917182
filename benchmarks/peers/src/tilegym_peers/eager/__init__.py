"""PyTorch as users write it, one file per op; found by file name."""
