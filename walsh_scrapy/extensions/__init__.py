"""Scrapy extensions: progress, the row of a run, exports, and the check of media types."""
