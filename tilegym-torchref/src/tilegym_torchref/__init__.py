"""TileGym's ops in plain PyTorch."""
