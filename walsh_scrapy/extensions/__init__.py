"""Scrapy extensions: progress, the record of a run, exports, and the check of media types."""
