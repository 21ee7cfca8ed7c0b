"""Scrapy extensions: progress, the summary, and the check of media types."""
