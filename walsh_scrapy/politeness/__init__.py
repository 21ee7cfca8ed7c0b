"""How a request waits: for its host, for robots.txt and for the blocklist (R2 to R5)."""
