"""The declared targets of a crawl (R6): what a source is, and the files that declare them."""

from walsh_scrapy.sources.declared import (
    Kind,
    Source,
    SourcesError,
    declared_urls,
    in_shard,
    load_sources,
    parse_shard,
    target_url,
)

__all__ = [
    "Kind",
    "Source",
    "SourcesError",
    "declared_urls",
    "in_shard",
    "load_sources",
    "parse_shard",
    "target_url",
]
