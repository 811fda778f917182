"""TileGym's kernels in NVIDIA's cuTile Python: backend `cutile`."""
