"""Documents as sites and operators publish them, and strategies that draw broken ones."""
# ruff: noqa: RUF001 - look-alikes are what is tested

import json
import re

from hypothesis import strategies as st

from tests.helpers import ROOT

_PARTS = re.compile(rb"(?=<)|(?<=[>\n])")


def json_values(*words: str) -> st.SearchStrategy[object]:
    """Return values of JSON of any shape, with these words among their keys and texts."""
    texts = st.text(max_size=8) | (st.sampled_from(words) if words else st.nothing())
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    )


def json_documents(*words: str) -> st.SearchStrategy[bytes]:
    """Return documents of JSON with these words."""
    return json_values(*words).map(json.dumps).map(str.encode)


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Return texts as bytes; halves of surrogate pairs as if UTF-8 had them."""
    return tuple(text.encode("utf-8", "surrogatepass") for text in texts)


@st.composite
def bodies(
    draw: st.DrawFn,
    seeds: tuple[bytes, ...],
    pieces: tuple[bytes, ...] = (),
    documents: st.SearchStrategy[bytes] | None = None,
) -> bytes:
    """Return any bytes, text, pieces or documents: alone, or in the middle of a seed."""
    text = st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    lines_and_tags = [part for seed in seeds for part in _PARTS.split(seed)]
    piece = st.sampled_from([*pieces, *lines_and_tags]) | st.binary(max_size=9)
    mixed = st.lists(piece, max_size=40).map(b"".join)
    whole = mixed if documents is None else documents
    noise = draw(st.binary(max_size=300) | text | mixed | whole)
    seed = draw(st.sampled_from((b"", *seeds)))
    start = draw(st.integers(0, len(seed)))
    end = draw(st.integers(start, min(len(seed), start + 30)))
    return seed[:start] + noise + seed[end:]


def read_seed(name: str) -> bytes:
    return (ROOT / "tests" / name).read_bytes()


ROBOTS = read_seed("policy/robots.txt")
BLOCKLIST = read_seed("policy/blocklist.json")
SCHEMA = read_seed("policy/schema.json")
RSS = read_seed("feeds/metadata/rss.xml")
ATOM = read_seed("feeds/metadata/atom.xml")
RDF = read_seed("feeds/metadata/rdf.xml")
JSON_FEED = read_seed("feeds/metadata/feed.json")
LLMS = read_seed("feeds/metadata/page.md")
OPML = read_seed("feeds/metadata/list.opml")
TOML = b"""[[source]]
url = "https://b\xc3\xbccher.example:443/feed.xml#top"
name = "B"
kind = "llms"
tags = ["a", "b"]
every = "P2DT3H"
"""
LIST = b"""# feeds
https://a.example/feed # the first
http://[2001:db8::1]:8080/a/../b
"""
URLS = (
    b"https://user@B\xc3\xbccher.Example.:443/a/%2E%2e/b?q=/../#top",
    b"http://0x7f.1/",
    b"//[2001:db8::1]:80\\a",
    b" HTTP:/fa\xc3\x9f.de:0080/./.. /",
    b"http://a%2eb.example./;x?y",
    b"../c%zz d\xff",
)
REFERENCES = (*URLS, b"//:/x", b"http://b.example\x11?")
DURATIONS = (b"P1W", b"P1DT12H30M1.5S", b"PT0,5H")
LINKS = b"""</page.md>; rel="alternate"; type="text/markdown", <b>; rel=next
<//blog.example:443/f>; type="application/atom+xml"; rel="x alternate"; title="a\\"<,\""""
HEAD = b"""<!doctype html><html><head><base href="/blog/"><noscript><img src=x></noscript>
<link rel="alternate" type="application/rss+xml" title="A &amp; B" href="feed/">
<LINK REL='x Alternate' HREF=//b.example/feed.json TYPE=application/json></head><body><p>x"""
CACHING = b"""max-age=3600, private="x"
Sun, 06 Nov 2027 08:49:37 GMT
Sat Nov 21 03:08:56 2026
60
120"""
DATES = (
    b"120",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"Sunday, 06-Nov-94 08:49:37 GMT",
    b"Sun Nov  6 08:49:37 1994",
    b'60, "1.5 min"',
    b"1779537690000",
)
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"
CHUNKED = b"HTTP/1.0 200\nno colon\nTransfer-Encoding: chunked\n\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"
RESPONSES = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "x"\r\n folded\r\n\r\nabc',
    EARLY + CHUNKED,
    b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: 9\r\n\r\n",
)

URL_PIECES = encoded(
    *("http", "HTTP", "https", "ftp", "feed", "mailto", ":", "://", "//", "/", "\\", "?", "#", "@"),
    *("[", "]", "%", "%2e", "%2f", "%25", "%61", "%5c", "%C2%AD", ".", "..", "a", "A", "b.example"),
    *("B.Example", "127", "127.1", "0x7f", "1", "80", ":80", ":443", ":65536", "::1", "user"),
    *("xn--", "bücher", "ß", "é", "ｅ", "．", "。", "℀", "❤", "\u00ad", "\u200d", "\t", "\n", " "),
    *("-", "_", "*", "\ud800", "\x00", "http://a/", "/../", "/./"),
)
MARKDOWN_PIECES = encoded(
    *("[", "]", "(", ")", "!", "<", ">", "`", "```\n", "*", "**", "_", "#", "# ", "## ", "- "),
    *("1. ", "> ", "    ", "\t", "\n", "\n\n", "\r", " ", ": ", "---\n", "===\n", "|", "\\", "&"),
    *("&amp;", "<!--", "-->", "<a href='", "'>", "</a>", "<div>", "<br>", "<https://", "https://"),
    *("a", "ä", "\u2028", "\x00", "\ufffd", "\ud800", "://", "/b", "?c", "#d", "@", "mailto:"),
    *("javascript:", "a.example", "[a](b)", "[r]: /r\n", "[r]", "![", "](", "][", "'t'", "HTTP://"),
    *("x" * 301, "word " * 150, "x" * 5000),
)
MARKUP_PIECES = encoded(
    *("<rss>", "<feed xmlns='http://www.w3.org/2005/Atom'>", "<channel>", "</channel>", "<item>"),
    *("</item>", "<entry>", "</entry>", "<title>", "</title>", "<link>", "</link>", "<opml>"),
    *("</opml>", "<outline ", "<outline>", "</outline>", 'xmlUrl="x"', "text=", "<head", "</head>"),
    *("<body>", "<svg>", "<base href=", "<link rel=alternate href=/f type=application/rss+xml>"),
    *("<b>" * 300, "a=b " * 300, "<!--", "-->", "<?xml ", "<?", "<!DOCTYPE a [", "]>", "<![CDATA["),
    *("]]>", "&amp;", "&nbsp;", "&#0;", "&", "<", ">", "/>", "'", '"', "\x00"),
)
RESPONSE_PIECES = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200\n", b"HTTP/1.1 103 Early Hints\r\n", b"\r\n", b"\n"),
    *(b"Content-Length: 3\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Connection: close\r\n", b" folded\r\n", b"no colon\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
)
DURATION_PIECES = tuple(bytes([piece]) for piece in b"PTWDHMS0123456789.,-")
