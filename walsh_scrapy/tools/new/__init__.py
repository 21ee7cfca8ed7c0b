"""``scrapy new``: what is new, as a list to read."""
