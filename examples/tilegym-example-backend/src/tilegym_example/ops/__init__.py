"""Backend `example` for the ops of TileGym itself, one file each."""
