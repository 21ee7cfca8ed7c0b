"""Readers of documents that need processor time, for the process of `readingworker`."""

import time

from walsh_scrapy.metadata.feeds import parse_feed


def busy(body, **rest):
    """Read a feed in 0.15 s."""
    until = time.process_time() + 0.15
    while time.process_time() < until:
        pass
    return parse_feed(body, **rest)


def endless(_body, **_rest):
    """Never return."""
    while True:
        pass
