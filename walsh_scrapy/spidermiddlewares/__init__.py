"""Spider middlewares: only declared targets enter a crawl, and only new entries leave it."""
