"""Bytes to entries: what a run may know of a feed, and nothing more (R6)."""
