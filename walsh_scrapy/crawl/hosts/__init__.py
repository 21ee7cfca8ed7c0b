"""The hosts that a crawl owns: their exchanges, and how requests wait for them."""
