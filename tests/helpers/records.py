"""Records of a state, with values for what a test does not care about."""

from walsh_scrapy.state.entries import EntryRecord


def entry_of(source, key="k", *, at=1.0, item="{}", **fields):
    """An entry of a feed, first seen at `at`; `item` is JSON."""
    given = {"page_key": key, "kind": "feed", "first_seen": at, "item": item}
    return EntryRecord(key=key, source=source, **given | fields)
