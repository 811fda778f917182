"""Peers of TileGym's backends."""
