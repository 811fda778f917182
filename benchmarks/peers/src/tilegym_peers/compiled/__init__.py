"""What `eager` has, through `torch.compile`, one file per op; found by file name."""
