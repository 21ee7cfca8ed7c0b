"""The commands that this project adds to ``scrapy``."""
