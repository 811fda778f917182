"""Matrix products of PyTorch, one file per op; found by file name."""
