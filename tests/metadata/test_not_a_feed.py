"""R9: a body that is no feed gives no entry, but one sentence with what it is."""

import pytest

from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed

URL = "https://blog.example/feed"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256))
FEED = b"<rss version='2.0'><channel><item><title>One</title></item></channel></rss>"


def sentence(body, content_type=None):
    with pytest.raises(NotAFeed) as caught:
        parse_feed(body, url=URL, content_type=content_type, source=URL)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "empty"),
        (b" \r\n\t ", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"<!DOCTYPE html><html><body><p>Hi", "an HTML page"),
        (b"<!doctype HTML>\n<p>Hi", "an HTML page"),
        (b"<html>" + FEED + b"</html>", "an HTML page"),
        (b"<!DOCTYPE html>" + FEED, "an HTML page"),
        (b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'/>", "an HTML page"),
        (b"<head><title>Document Moved</title></head>\n<body>", "an HTML page"),
        ("<html>é".encode("utf-16"), "an HTML page"),
        (b"<opml version='1.1'><body><outline xmlUrl='x'/></body></opml>", "OPML"),
        (b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>", "a sitemap"),
        (b"<?xml version='1.0'?>\n<!-- x -->\n<sitemapindex/>", "a sitemap index"),
        (b"<svg><metadata><rdf:RDF/></metadata></svg>", "SVG"),
        (b"<entry xmlns='http://www.w3.org/2005/Atom'/>", "a single Atom entry"),
        (b"<?xml version='1.0'?><?x y?><!-- <rss> --><note/>", "<note>"),
        (b"<s:Envelope xmlns:s='x'/>", "<envelope>"),
        (b"<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'/>", "XML of another"),
        (PNG, "PNG"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG"),
        (b"GIF89a", "GIF"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x03\x04", "ZIP"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (bytes(range(1, 256)), "binary data"),
        (b"404 page not found\n", "plain text"),
        (b"# A blog\n\n- [One](https://blog.example/1)", "plain text"),
        (b"User-agent: *\nDisallow: /", "plain text"),
        (b"a < b", "plain text"),
        (b"/etc/passwd", "plain text"),
        (b"https://blog.example/feed.xml", "plain text"),
        (b"{}", "JSON"),
    ],
)
def test_the_sentence_says_what_the_body_is(body, what):
    said = sentence(body)
    assert what in said
    assert said.endswith(".")


def test_the_sentence_has_the_media_type_and_stays_one_line():
    assert sentence(b"hello", "text/plain") == "Not a feed but plain text (served as text/plain)."
    forged = sentence(b"hello", "text/plain\r\nERROR forged " + "x" * 999)
    assert "\n" not in forged
    assert len(forged) < 150


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "image/png", "", None, "?"])
def test_the_bytes_decide_and_not_the_media_type(content_type):
    feed = parse_feed(FEED, url=URL, content_type=content_type, source=URL)
    assert [entry.title for entry in feed.entries] == ["One"]


def test_no_file_and_no_url_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feed.xml").write_bytes(FEED)
    for name in (b"feed.xml", bytes(tmp_path / "feed.xml"), b"file:feed.xml"):
        assert "plain text" in sentence(name)
    body = (
        b"<!DOCTYPE rss [<!ENTITY f SYSTEM 'file:///etc/passwd'><!ENTITY % p SYSTEM 'feed.xml'>]>"
        b"<rss><channel><title>&f;</title></channel></rss>"
    )
    assert "root:" not in repr(parse_feed(body, url=URL, content_type=None, source=URL))
