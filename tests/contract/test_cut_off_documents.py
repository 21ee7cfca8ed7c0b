"""R7: a response that was cut off is read only if its parser saw the end of the document."""

import gzip
import zlib
from collections import Counter

from tests.helpers.sites import judge, rows_of, site
from walsh_scrapy.testing.feeds import atom, json_feed, rss
from walsh_scrapy.testing.site import Raw, Reply

MAX_BYTES = 20_000
SETTINGS = {"DOWNLOAD_MAXSIZE": MAX_BYTES, "RETRY_TIMES": 1}
BLANKS = b" " * MAX_BYTES
GZIP = "Content-Encoding: gzip"
DEFLATE = "Content-Encoding: deflate"


def document(host, make=rss):
    return make("Blog", ["One", "Two"], f"http://{host}/").encode()


def raw_deflate(body):
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


def response(body, *fields):
    """A response that ends with its connection."""
    lines = ("HTTP/1.1 200 OK", 'ETag: "1"', "Content-Type: application/xml", *fields)
    return Raw(["\r\n".join((*lines, "", "")).encode() + body])


def whole(body, *fields):
    return response(body, f"Content-Length: {len(body)}", *fields)


def short(body, *fields):
    """A response with less than its Content-Length."""
    return response(body, f"Content-Length: {len(body) + 9}", *fields)


def chunked(body):
    """A response without its last chunk."""
    return response(b"%x\r\n%b\r\n" % (len(body), body), "Transfer-Encoding: chunked")


#: The kind of feed, and the response with it.
READ = {
    "rss": (rss, short),
    "atom": (atom, short),
    "json": (json_feed, short),
    "utf16": (rss, lambda body: short(body.decode().replace("utf-8", "utf-16").encode("utf-16"))),
    "not-valid": (rss, lambda body: short(body.replace(b"<title>Blog", b"<title>A & B<br>"))),
    "comment": (rss, lambda body: short(body + b"<!-- served by")),
    "chunked": (rss, chunked),
    "gzip": (rss, lambda body: short(gzip.compress(body), GZIP)),
    "deflate": (rss, lambda body: short(zlib.compress(body), DEFLATE)),
    "raw-deflate": (rss, lambda body: short(raw_deflate(body), DEFLATE)),
    "too-large": (rss, lambda body: response(body + BLANKS)),
    "too-large-unpacked": (rss, lambda body: whole(gzip.compress(body + BLANKS), GZIP)),
}
RSS, ATOM, JSON = (document("blog.example", make) for make in (rss, atom, json_feed))
INCOMPLETE = "ended before it was complete"
NOT_READ = {
    "half-rss": (short(RSS[: len(RSS) // 2]), INCOMPLETE),
    "half-atom": (short(ATOM[: len(ATOM) // 2]), INCOMPLETE),
    "half-json": (short(JSON[: len(JSON) // 2]), INCOMPLETE),
    "no-root-end": (short(RSS[: RSS.index(b"</rss>")]), INCOMPLETE),
    "quoted-end": (short(RSS[: len(RSS) // 2] + b"<!-- </rss> -->"), "was cut off before its end"),
    "half-chunk": (chunked(RSS[: len(RSS) // 2]), INCOMPLETE),
    "no-gzip-end": (short(gzip.compress(RSS)[:-8], GZIP), INCOMPLETE),
    "whole-without-gzip-end": (whole(gzip.compress(RSS)[:-8], GZIP), "is not gzip as announced"),
    "wrong-sum": (whole(gzip.compress(RSS)[:-8] + b"12345678", GZIP), "is not gzip as announced"),
    "no-zlib-end": (whole(zlib.compress(RSS)[:-4], DEFLATE), "is not deflate as announced"),
    "no-deflate-end": (whole(raw_deflate(RSS)[:-9], DEFLATE), "is not deflate as announced"),
    "too-large": (response(RSS[:-9] + BLANKS), "is too large"),
    "too-large-unpacked": (whole(gzip.compress(RSS[:-9] + BLANKS), GZIP), "when unpacked"),
}


def url_of(name):
    return f"http://{name}.example/feed"


def names_of(log):
    return [hit.host.removesuffix(".example") for hit in log if hit.path == "/feed"]


def validators_sent(result):
    feeds = [hit for hit in result.log if hit.path == "/feed"]
    return {hit.host.removesuffix(".example"): hit.header("If-None-Match") for hit in feeds}


def test_a_feed_whose_end_came_is_read(direct_web, crawl, again):
    """Its validators are not kept, so the next visit gets the whole response."""
    sites = []
    for name, (make, respond) in READ.items():
        body = document(f"{name}.example", make)
        complete = Reply(body, content_type="application/xml", etag='"1"')
        sites.append(site(f"{name}.example", feed=[respond(body), complete]))
    web = direct_web(*sites)
    options = {"sources": [url_of(name) for name in READ], "settings": SETTINGS}
    first, second, third = (run(web, **options) for run in (crawl, again, again))
    counts = Counter(item["source"] for item in first.items)
    assert counts == {url_of(name): 2 for name in READ}
    assert Counter(names_of(first.log)) == dict.fromkeys(READ, 1)
    assert "walsh/sources/cut_off" not in first.stats, "nothing of the feed is missing"
    assert "was cut off" not in first.stderr
    assert validators_sent(second) == dict.fromkeys(READ)
    assert second.items == []
    assert validators_sent(third) == dict.fromkeys(READ, '"1"')
    judge(web)


def test_a_feed_whose_end_is_missing_is_not_read(direct_web, crawl):
    web = direct_web(*(site(f"{name}.example", feed=page) for name, (page, _) in NOT_READ.items()))
    result = crawl(web, sources=[url_of(name) for name in NOT_READ], settings=SETTINGS)
    details = dict(rows_of(result, "SELECT url, detail FROM sources WHERE outcome = 'failed'"))
    assert result.items == []
    assert {*details} == {url_of(name) for name in NOT_READ}
    for name, (_, reason) in NOT_READ.items():
        assert reason in details[url_of(name)], name
        assert url_of(name) not in details[url_of(name)], "the log has the URL before the reason"
    sent_twice = {name for name, number in Counter(names_of(result.log)).items() if number == 2}
    assert sent_twice == {name for name, (_, reason) in NOT_READ.items() if reason == INCOMPLETE}
    judge(web)
