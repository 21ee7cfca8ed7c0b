"""Broken versions of the crawler, and the public checks that find them."""
