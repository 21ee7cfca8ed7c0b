"""The gates, one in each file: thin glue between Scrapy and ``walsh_scrapy.policy``."""
