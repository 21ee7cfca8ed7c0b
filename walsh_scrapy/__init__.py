"""Crawlers that keep their word: gates, scheduler and state for polite Scrapy projects."""

#: The version of a release, for a clone as for an installed package.
__version__ = "0.1.0"
