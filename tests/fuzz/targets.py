"""The table of what is fuzzed."""

# ruff: noqa: RUF001 - look-alikes are what is tested
from tests.fuzz import documents, values
from tests.fuzz.target import Target, encoded, json_documents

ROBOTS = b"""User-agent: *
Crawl-delay: 2.5
Disallow: /private/*.xml$
Allow: /private/feed%2Fx
Visit-time: 0600-0845
Request-rate: 1/10m 1300-1659

User-agent: Walsh
User-agent: Walsh-Research/1.0
Robot-version: 2.0
Disallow: */[a-c]?*
Allow: /caf\xc3\xa9?q=%3f
Comment: write to us # or not
Sitemap: https://blog.example/sitemap.xml
"""
BLOCKLIST = b"""{"version": "walsh-research-blocklist/v1", "updated": "2026-05-23T00:00:00Z",
"contact": "j@wal.sh", "policy": "https://wal.sh/bot/", "refresh": "PT6H", "blocked": [
{"domain": "Example.com.", "added": "2026-05-23", "reason": "email opt-out"},
{"domain": "b\\u00fccher.example", "added": "2026-05-23", "reason": "email opt-out"},
{"domain": "192.0.2.1", "added": "2026-05-23", "reason": "\\ud800 \\u0000"},
{"domain": "::ffff:192.0.2.9", "added": "2026-05-23", "reason": "email opt-out"}]}"""
SCHEMA = b"""{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
"required": ["blocked"], "properties": {"refresh": {"type": "string", "pattern": "^PT[0-9]+H$"},
"blocked": {"type": "array", "items": {"$ref": "#/$defs/entry"}, "maxItems": 10, "minItems": 0}},
"$defs": {"entry": {"type": "object", "properties": {"domain": {"type": "string", "minLength": 1}},
"additionalProperties": true, "anyOf": [{"required": ["domain"]}, {"not": {}}]}}}"""
RSS = b"""<?xml version="1.0" encoding="utf-8"?><rss version="2.0"
xmlns:dc="http://purl.org/dc/elements/1.1/"
xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"><channel><title>T</title><ttl>60</ttl>
<skipHours><hour>1</hour></skipHours><skipDays><day>Sunday</day></skipDays><language>en</language>
<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>
<item><title>A &amp; B</title><link>https://a.example/1#x</link>
<guid isPermaLink="false">g1</guid><pubDate>Wed, 03 Jan 2018 14:11:52 GMT</pubDate>
<dc:creator>Jo (j@a.example)</dc:creator><category domain="d">c</category>
<description><![CDATA[<p>x</p>]]></description></item></channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en" xml:base="/b/">
<title type="html">&lt;b&gt;T&lt;/b&gt;</title><author><name>N</name>
<email>n@a.example</email></author><entry>
<id>tag:a,1</id><title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">A <b>B</b></div>
</title><link rel="alternate" href="1"/><updated>2026-05-23T00:00:00Z</updated><category term="c"/>
<source><title>s</title></source></entry></feed>"""
RDF = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
xmlns="http://purl.org/rss/1.0/"><channel rdf:about="u"><title>T</title></channel>
<item rdf:about="https://a.example/1"><title>\xe9</title><link>https://a.example/1</link></item>
</rdf:RDF>"""
JSON_FEED = b"""{"version": "https://jsonfeed.org/version/1.1", "title": "T", "expired": false,
"language": "en", "authors": [{"name": "N"}], "items": [{"id": 1, "url": "/1", "title": "A\\ud800",
"date_published": "2026-05-23T00:00:00Z", "tags": ["c"], "authors": [{"name": "N"}]},
{"id": "2", "external_url": "https://a.example/2", "author": {"name": "M"}, "title": null}]}"""
LLMS = b"""---
title: x
---
# Project

> What it is

## Docs
- [Guide](guide.md): how to begin
- <https://a.example/x> - a note
  - [nested [deep](a.md)](/b.md "title")

Setext
------
1. ![image](i.png) [ref][1] `[code](c.md)`

[1]: https://b.example/1 'one'
"""
OPML = b"""<?xml version="1.0"?><opml version="2.0"><head><title>S</title></head><body>
<outline text="Folder"><outline type="rss" text="A &amp; B" title="A" category="/x/y,z"
xmlUrl="https://a.example/feed?x=1&amp;y=2" htmlUrl="https://a.example/"/></outline>
<outline text="no feed" url="https://b.example/"/></body></opml>"""
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
SOURCES_JSON = b'{"source": ["https://a.example/f", {"url": "//b.example/", "every": "P1D"}]}'
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
LIST_WORDS = ("contract", "walsh-research-blocklist/v1", "refresh", "PT6H", "blocked", "domain")
SCHEMA_WORDS = ("type", "$ref", "$id", "$schema", "properties", "items", "blocked", "#", "pattern")

TARGETS = {
    "robots": Target(documents.robots, (ROBOTS,)),
    "blocklist": Target(documents.blocklist, (BLOCKLIST,), made=json_documents(*LIST_WORDS)),
    "schema": Target(documents.schema, (SCHEMA,), made=json_documents(*SCHEMA_WORDS)),
    "feeds": Target(documents.feed, (RSS, ATOM, RDF), pieces=MARKUP_PIECES),
    "jsonfeed": Target(documents.feed, (JSON_FEED,)),
    "llms": Target(documents.llms, (LLMS,), pieces=MARKDOWN_PIECES),
    "opml": Target(documents.opml, (OPML,), pieces=MARKUP_PIECES),
    "sources": Target(documents.sources, (TOML, LIST, SOURCES_JSON, OPML), pieces=URL_PIECES),
    "retryafter": Target(values.retry_after, DATES),
    "freshness": Target(values.freshness, (CACHING,)),
    "durations": Target(values.duration, DURATIONS, pieces=DURATION_PIECES),
    "urls": Target(values.url, URLS, pieces=URL_PIECES),
    "references": Target(values.reference, REFERENCES, pieces=URL_PIECES),
    "linkheaders": Target(values.link_header, (LINKS,)),
    "heads": Target(values.html_head, (HEAD,), pieces=MARKUP_PIECES),
    "responses": Target(values.response, RESPONSES, pieces=RESPONSE_PIECES),
}
