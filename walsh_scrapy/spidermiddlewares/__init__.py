"""Spider middlewares: only declared URLs are requested, and only new entries are exported."""
