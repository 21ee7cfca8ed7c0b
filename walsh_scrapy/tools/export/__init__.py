"""``scrapy export``: the record as files."""
