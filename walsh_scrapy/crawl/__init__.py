"""One crawl: its queue, the hosts that it owns, robots.txt, blocklist, and how they are joined."""
