"""``scrapy backup``: what another machine needs, in one file, and back (docs/state.md)."""
