"""``scrapy sources``: every declared source and what is known of it."""
