"""``scrapy hosts``: which hosts rest, and how an operator changes that (decision 31)."""
