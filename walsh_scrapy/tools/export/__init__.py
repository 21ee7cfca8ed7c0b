"""``scrapy export``: entries and sources of the state, in the formats of others (decision 18)."""
