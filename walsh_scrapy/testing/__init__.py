"""A loopback web and what tests need to judge a crawl by its server's log."""
