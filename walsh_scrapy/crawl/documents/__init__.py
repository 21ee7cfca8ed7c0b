"""The documents that a crawl obeys: robots.txt and the blocklist."""
