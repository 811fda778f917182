"""A TileGym backend `example` and an op pack `example`, as a stranger would ship them."""
