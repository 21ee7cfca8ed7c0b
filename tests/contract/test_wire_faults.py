"""What servers do on the wire, against a real socket: what is read, what is refused and why."""

from tests.helpers.sites import feed, judge, paths, rows_of, site, trouble
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import Raw
from walsh_scrapy.testing.web import Fault, Reply, Site

BODY = feed().content()
QUICK = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "DOWNLOAD_TIMEOUT": 20}


def head(*fields, status="200 OK", version="1.1"):
    lines = [f"HTTP/{version} {status}", "Content-Type: application/rss+xml", *fields]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


LENGTH = f"Content-Length: {len(BODY)}"
WHOLE = head(LENGTH) + BODY
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
READ = {
    "hints": [EARLY, 0.1, WHOLE],
    "continue": [b"HTTP/1.1 100 Continue\r\n\r\n" + EARLY + WHOLE],
    "bytewise": [WHOLE[:1], 0.05, WHOLE[1:30], 0.05, WHOLE[30:]],
    "old": [head(version="1.0") + BODY],
    "endless-body": [head() + BODY],
    "closing": [head(LENGTH, "Connection: close") + BODY],
    "bare-lf": [WHOLE.replace(b"\r\n", b"\n")],
    "chunked": [
        head("Transfer-Encoding: chunked", "Trailer: X-Sum"),
        b"%x;note=1\r\n" % len(BODY) + BODY + b"\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    ],
    "large-head": [head("X-Large: " + "x" * 65536, LENGTH) + BODY],
    "cookies": [head(*["Set-Cookie: a=" + "b" * 200] * 400, LENGTH) + BODY],
    "odd-lines": [head("no colon here", "Odd Name: x", " folded", "X: a", "\tb", LENGTH) + BODY],
    "surplus": [WHOLE + b"HTTP/1.1 200 OK\r\n\r\nnobody asked for this"],
}
FIELDS = b"X-Field: yes\r\n"
REFUSED = {
    "endless": ([head()[:-2], *[FIELDS * 1000] * 50], "the head of the response is longer than"),
    "folded": ([head("X: 1")[:-2], *[b" more\r\n" * 2000] * 50], "the head of the response is"),
    "crumbs": ([head(*["Set-Cookie: a"] * 5000, LENGTH) + BODY], "has more than 500 lines"),
    "jar": ([head()[:-2], *[b"Set-Cookie: a=b\r\n" * 9000] * 50], "the head of the response is"),
    "trailers": (
        [head("Transfer-Encoding: chunked") + b"0\r\n", *[FIELDS * 9000] * 50],
        "ended before it was complete",
    ),
    "many": ([head(*["X: 1"] * 600)], "the head of the response has more than 500 lines"),
    "patient": ([EARLY * 3000 + WHOLE], "the head of the response is longer than 128 KiB"),
    "switching": ([head("Upgrade: x", status="101 Switching")], "the response is no HTTP"),
    "garbage": ([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "the response is no HTTP"),
    "wordy": ([head("Content-Length: 5", "Content-Length: 6")], "the response is no HTTP"),
    "cut": ([head(f"Content-Length: {len(BODY) + 9}") + BODY], "ended before it was complete"),
    "unpaired": (
        [head("Transfer-Encoding: chunked") + b"zz\r\nbody\r\n"],
        "ended before it was complete",
    ),
    "stalled": ([head(LENGTH) + BODY[:9], 60.0], "less than 100 bytes a second came for 1 s"),
    "dripping": ([head(LENGTH), *[0.2, b"<"] * 99], "less than 100 bytes a second came for 1 s"),
    "dripping-head": ([b"HTTP", *[0.2, b"/"] * 99], "less than 100 bytes a second came for 1 s"),
}


def reasons(result):
    rows = rows_of(result, "SELECT url, outcome, detail FROM sources")
    return {url.split("/")[2].partition(".")[0]: (outcome, detail) for url, outcome, detail in rows}


def test_odd_responses_are_read_and_broken_ones_refused(direct_web, crawl):
    """One crawl over all of them: none disturbs another, and each reason names the limit."""
    raw = READ | {name: pieces for name, (pieces, _) in REFUSED.items()}
    web = direct_web(*(site(f"{name}.example", feed=Raw(pieces)) for name, pieces in raw.items()))
    sources = [f"http://{name}.example/feed" for name in raw]
    result = crawl(web, sources=sources, settings=QUICK | trouble("ImpatientBodies"))
    found = reasons(result)
    assert {name: found[name] for name in READ} == dict.fromkeys(READ, ("fetched", ""))
    for name, (_, why) in REFUSED.items():
        outcome, detail = found[name]
        assert outcome == "failed"
        assert why in detail, name
    assert "Traceback" not in result.stderr
    assert web.most_open_connections == 1
    assert_polite(result.log, connections=web.connections)


def test_a_kept_connection_that_the_server_closes_is_paced_and_asked_again(direct_web, crawl):
    """The server closes it as the request comes, so the request is sent again, a second later."""
    web = direct_web(site("blog.example", feed=[Reply(fault=Fault.CLOSE), feed()]))
    result = crawl(web, sources=["http://blog.example/feed"])
    assert paths(result.log) == [f"blog.example/{path}" for path in ("robots.txt", "feed", "feed")]
    first, second, third = result.log
    assert first.client == second.client != third.client
    assert len(result.items) == 2
    assert_polite(result.log, connections=web.connections)


def test_a_host_that_drips_costs_a_run_little(direct_web, crawl, again):
    """When the time for robots.txt is over, all else is deferred; later runs try one target.

    In truth these are 30 s in the first run, and 14 s and 20 s in the next.
    """
    slowly = Raw([b"HTTP/1.1 200 OK\r\n\r\n", *[0.2, b"#"] * 200])
    pages = {f"/{name}": slowly for name in "abc"}
    web = direct_web(Site("slow.example", slowly, pages), site("blog.example"))
    sources = ["http://blog.example/feed", *(f"http://slow.example{path}" for path in pages)]
    settings = trouble("ImpatientBodies") | {"WALSH_BACKOFF_BASE": 0.01}
    first = crawl(web, sources=sources, settings=settings)
    asked = [hit.path for hit in first.log if hit.host == "slow.example"]
    assert set(asked) == {"/robots.txt"}
    assert "slow.example is not tried again now: its robots.txt did not come in 3 s" in first.stderr
    assert (first.stats["walsh/sources/fetched"], first.stats["walsh/sources/deferred"]) == (1, 3)
    second = again(web, sources=sources, settings=settings)
    later = [hit for hit in second.log if hit.host == "slow.example"]
    assert len([hit for hit in later if hit.path in pages]) == 1
    assert "slow.example is not tried again now: it sends too slowly" in second.stderr
    assert second.stats["walsh/sources/failed"] == 1
    assert rows_of(second, "SELECT host FROM hosts WHERE unreachable") == []
    judge(second, robots_first=False)
