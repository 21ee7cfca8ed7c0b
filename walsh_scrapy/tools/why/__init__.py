"""``scrapy why``: why a host was asked on one day, in words that can be mailed (decision 36)."""
