"""Scrapy extensions: progress and summary in the log, and bodies dropped at their headers."""
