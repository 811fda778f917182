"""Backend `torch` for the ops of pack `example`, one file each."""
