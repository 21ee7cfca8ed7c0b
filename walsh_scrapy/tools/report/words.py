"""Counts as the page writes them."""

from __future__ import annotations

from walsh_scrapy.policy import wording


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, thousands apart: `10,000 requests`."""
    return wording.counted(number, singular, plural).replace(str(number), f"{number:,}", 1)
