"""llms.txt and pages of markdown: from the bytes of a page to its links (R9)."""

from walsh_scrapy.metadata.llms.reader import parse_llms

__all__ = ["parse_llms"]
