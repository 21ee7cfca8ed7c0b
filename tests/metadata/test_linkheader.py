"""R9: the alternates of a page in its `Link` headers (RFC 8288)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.metadata.alternates import FeedLink, feed_alternates, markdown_alternates

PAGE = "https://docs.example/guide/"
TYPE = "rel=alternate; type=text/markdown"


def found(*values, url=PAGE, language=""):
    return list(markdown_alternates(values, url, language))


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("page.md", "https://docs.example/guide/page.md"),
        ("/page.md#part", "https://docs.example/page.md"),
        ("//DOCS.example/page.md", "https://docs.example/page.md"),
        ("https://docs.example:443/page.md", "https://docs.example/page.md"),
        ("http://docs.example/page.md", "http://docs.example/page.md"),
        ("https://docs.example:8443/page.md", None),
        ("http://docs.example:443/page.md", None),
        ("https://www.docs.example/page.md", None),
        ("https://docs.example.evil.example/page.md", None),
        ("ftp://docs.example/page.md", None),
        ("http://[", None),
    ],
)
def test_only_urls_on_the_pages_own_server_are_returned(target, address):
    assert found(f"<{target}>; {TYPE}") == ([address] if address else [])


def test_a_page_on_another_port_has_alternates_on_that_port():
    value = f"</a.md>; {TYPE}, <http://docs.example/b.md>; {TYPE}"
    assert found(value, url="http://docs.example:8080/") == ["http://docs.example:8080/a.md"]


@pytest.mark.parametrize(
    "parameters",
    [
        'type="text/markdown"; rel="next alternate"',
        'REL=Alternate; Type="text/markdown; charset=utf-8"',
        'rel="alter\\nate"; type="text\\/markdown; x=\\"y\\""',
        'title="a, <b>; \\"c\\""; rel=alternate; type=text/x-markdown',
    ],
)
def test_parameters_are_read_in_all_their_forms(parameters):
    assert found(f"<a>; {parameters}") == [f"{PAGE}a"]


@pytest.mark.parametrize(
    "value",
    [
        "<a>; rel=alternate",
        "<a>; rel=alternate; type=text/html",
        "<a>; rel=next; type=text/markdown",
        "<a>; rel=alternate; type=text/html; type=text/markdown",
        f"<a>; {TYPE}; anchor=/other",
        f"a; {TYPE}",
        "",
    ],
)
def test_headers_without_a_markdown_alternate(value):
    assert found(value) == []


@pytest.mark.parametrize(
    ("language", "order"),
    [
        ("", ["none", "x", "de", "en"]),
        ("en", ["none", "en", "x", "de"]),
        ("DE-ch", ["de", "none", "x", "en"]),
        ("fr, en", ["none", "x", "de", "en"]),
    ],
)
def test_other_languages_come_last(language, order):
    value = (
        f"<de>; {TYPE}; hreflang=de-AT, <none>; {TYPE}, <en>; {TYPE}; "
        f'hreflang="EN", <x>; {TYPE}; hreflang=x-default'
    )
    assert found(value, language=language) == [PAGE + name for name in order]


def test_a_url_is_returned_once_with_its_best_language():
    values = (f"<a>; {TYPE}; hreflang=de", f"<b>; {TYPE}; hreflang=de, <a>; {TYPE}")
    assert found(*values) == [f"{PAGE}a", f"{PAGE}b"]


def test_feed_alternates():
    value = (
        '</feed>; rel=alternate; type=application/rss+xml; title="Blog", '
        "<a>; rel=alternate; type=text/markdown, "
        "<//feeds.example/atom>; rel=alternate; type=application/atom+xml"
    )
    assert feed_alternates([value], PAGE) == (
        FeedLink("https://docs.example/feed", "Blog", "application/rss+xml"),
        FeedLink("https://feeds.example/atom", None, "application/atom+xml"),
    )


@given(st.lists(st.text(max_size=60), max_size=5), st.text(max_size=20))
def test_any_headers_give_only_urls_on_the_own_server(values, language):
    values += [f"<{value}>; {TYPE}; hreflang={language}" for value in values]
    for address in found(*values, language=language):
        assert address.startswith(("https://docs.example/", "http://docs.example/"))
