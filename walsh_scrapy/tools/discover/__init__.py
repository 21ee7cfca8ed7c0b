"""``scrapy discover``: what a site offers a crawl."""
