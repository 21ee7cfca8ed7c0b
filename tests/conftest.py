pytest_plugins = ["walsh_scrapy.testing.plugin"]
