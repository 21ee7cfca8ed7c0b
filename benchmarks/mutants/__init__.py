"""Broken versions of the crawler, and which public judge finds which of them."""
