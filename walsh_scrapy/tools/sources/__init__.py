"""``scrapy sources``: what the state knows of each source, and how an operator changes that."""
