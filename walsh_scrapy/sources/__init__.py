"""Declared sources (R6): what a source is, and the files that declare them."""

from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.source import (
    Kind,
    Source,
    SourcesError,
    declaration,
    declared_urls,
    host_pauses,
    target_url,
    with_pauses,
)

__all__ = [
    "Kind",
    "Source",
    "SourcesError",
    "declaration",
    "declared_urls",
    "host_pauses",
    "load_sources",
    "target_url",
    "with_pauses",
]
