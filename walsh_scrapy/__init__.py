"""Crawlers that keep their word: gates, scheduler and state for polite Scrapy projects."""
