"""Scrapy extensions: progress and summary of a run, exports, and the check of media types."""
