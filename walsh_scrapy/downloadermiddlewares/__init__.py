"""The middlewares, one per file: thin glue between Scrapy and ``walsh_scrapy.policy``."""
