"""Declared sources (R6), and the files that declare them."""
