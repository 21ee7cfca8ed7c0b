"""``scrapy export``: entries and sources, written from the state into a file."""
