"""What identifies an entry, and whose it is (decision 19)."""

import pytest

from walsh_scrapy.policy.entrykeys import SourceKeys


@pytest.mark.parametrize(
    ("url", "id_", "is_own"),
    [
        ("https://a.example/1", None, True),
        ("http://a.example:8080/1", "http://b.example/1", True),
        ("http://blog.a.example/1", None, False),
        ("http://blog-a.example/1", None, False),
        ("http://a.example.net/1", None, False),
        (None, "http://blog.a.example/1", False),
        (None, "17", True),
        (None, None, True),
    ],
)
def test_a_source_owns_the_entries_of_its_host_only(url, id_, is_own):
    """Another host could else make its entries look known, and keep them from being reported."""
    assert SourceKeys("http://a.example/feed").is_own(url, id_) is is_own
