"""``scrapy discover``: what a site offers a crawl, as lines for ``sources.toml``."""
