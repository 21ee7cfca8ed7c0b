"""The gates, one a file, in the contract's order: thin glue around ``walsh_scrapy.policy``."""
