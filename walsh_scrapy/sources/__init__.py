"""Declared sources (R6): what a source is, and the files that declare them."""
