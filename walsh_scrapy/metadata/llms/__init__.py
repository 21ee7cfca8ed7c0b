"""llms.txt and pages of markdown: bytes to links (R9)."""

from walsh_scrapy.metadata.llms.parse import parse_llms

__all__ = ["parse_llms"]
