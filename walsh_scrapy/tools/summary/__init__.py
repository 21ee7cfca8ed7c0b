"""The summary of a run: its counts, its text, and the object that the state and a file keep."""

from walsh_scrapy.tools.summary.counts import RequestCounts, SourceCounts, is_by_source
from walsh_scrapy.tools.summary.record import summary_of
from walsh_scrapy.tools.summary.text import summary_lines

__all__ = ["RequestCounts", "SourceCounts", "is_by_source", "summary_lines", "summary_of"]
