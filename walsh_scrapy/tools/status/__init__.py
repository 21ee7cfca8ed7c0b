"""``scrapy status``: is all well? For an operator, and for a monitor."""
