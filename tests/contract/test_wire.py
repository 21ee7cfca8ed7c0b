"""At most one connection is open, whatever is requested; names, families, sessions (26, 27)."""

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.helpers.sites import (
    LIST_URL,
    blamed_hosts,
    blocklist,
    critical_line,
    feed,
    feeds,
    judge,
    log_lines,
    paths,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import DEAD, NO_RESOLVER, OWN, UNKNOWN, Answer, Down, Raw, silent
from walsh_scrapy.testing.web import Certificate, Fault, Reply, Site, redirect


def test_one_connection_at_a_time_and_one_full_handshake_a_host(direct_web, crawl):
    """http and https, both versions of TLS, redirects between hosts, robots.txt and blocklist."""
    secure = [
        replace(site(f"s{number}.example"), tls=Certificate.GOOD, tls_version=version)
        for number, version in enumerate(["1.2", "1.3"] * 3)
    ]
    plain = [site(f"p{number}.example") for number in range(6)]
    web = direct_web(
        Site("operator.example", "", {"/blocklist.json": blocklist("blocked.example")}),
        site("blocked.example"),
        site("mover.example", feed=redirect("https://s0.example/other")),
        *secure,
        *plain,
    )
    sources = [
        *(f"https://{host.name}/feed" for host in secure),
        *(f"http://{host.name}/feed" for host in plain),
        "http://mover.example/feed",
        "http://blocked.example/feed",
    ]
    web.add(replace(secure[0], pages={"/feed": secure[0].pages["/feed"], "/other": "no feed"}))
    result = crawl(web, sources=sources, settings={"WALSH_BLOCKLIST_URL": LIST_URL})
    assert result.stats["walsh/sources/fetched"] == 12
    assert web.most_open_connections == 1
    secured = [connection for connection in web.connections if connection.scheme == "https"]
    for host in secure:
        shaken = [it.handshake for it in secured if it.host == host.name]
        assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
        assert len(shaken) > 1
    assert "blocked.example" not in {lookup.name for lookup in web.lookups}
    assert "blocked.example" not in {connection.host for connection in web.connections}
    assert_polite(result.log, connections=web.connections, blocked=["blocked.example"])


def connections_of(pid):
    """The TCP connections, made or begun, of which a process has the descriptors, by number.

    The table of the system changes while it is read, so one connection may be in it twice.
    """
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            held.add(str(descriptor.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] in ("01", "02") and f"socket:[{row[9]}]" in held}


def test_the_crawler_has_one_descriptor_of_a_connection(direct_web, crawl):
    """Counted in the process itself, while it waits for each answer."""
    started, counts = SimpleQueue(), []

    def page(hit):
        started.put(pid := started.get(timeout=60))
        counts.append(len(connections_of(pid)))
        return feed(host=hit.host)

    plain = [site(f"p{number}.example", feed=page) for number in range(3)]
    secure = [replace(host, name=f"s{host.name}", tls=Certificate.GOOD) for host in plain]
    web = direct_web(*plain, *secure)
    sources = [f"http://{host.host}/feed" for host in plain]
    sources += [f"https://{host.host}/feed" for host in secure]
    running = crawl.start(web, sources=sources)
    started.put(running.pid)
    assert running.wait().stats["walsh/sources/fetched"] == 6
    assert counts == [1] * 6


def test_every_family_and_every_address_is_tried(direct_web, crawl):
    answers = {
        "six.example": Answer(("::1",)),
        "dead-first.example": Answer((DEAD, OWN)),
        "six-dead.example": Answer(("2001:db8::1", OWN)),
        "mapped.example": Answer(("::ffff:127.0.0.1",)),
        "nowhere.example": UNKNOWN,
    }
    web = direct_web(*(replace(site(name), dns=answer) for name, answer in answers.items()))
    result = crawl(web, sources=[f"http://{name}/feed" for name in answers])
    assert {hit.host for hit in result.log} == {*answers} - {"nowhere.example"}
    assert result.stats["walsh/sources/fetched"] == 4
    assert web.most_open_connections == 1


def test_names_are_looked_up_before_their_turn(direct_web, crawl):
    """Twenty names of half a second each are looked up while others are requested."""
    slow = Answer(delay=0.5)
    web = direct_web(*(replace(site(f"h{number}.example"), dns=slow) for number in range(20)))
    crawl(web, sources=[f"http://h{number}.example/feed" for number in range(20)])
    assert len(web.lookups) == 20
    overlapping = [
        sum(1 for other in web.lookups if other.started <= lookup.started < other.ended)
        for lookup in web.lookups
    ]
    assert max(overlapping) > 4


#: Seconds for which the spider below blocks the crawl with each document.
BLOCKED = 2.5
SLOW_SPIDER = f"""
import time
from spiders.feeds import FeedsSpider


class SlowSpider(FeedsSpider):
    name = "slow"
    custom_settings = {{"SPIDER_MODULES": ["spiders"]}}

    async def parse(self, response, source):
        async for item in super().parse(response, source):
            yield item
        time.sleep({BLOCKED})
"""


def test_a_spider_that_blocks_makes_no_exchange_longer(direct_web, crawl, project_with):
    """Neither in the record, nor in the delay after it."""
    page = feed(delay=1.0)
    names = ("first", "second")
    web = direct_web(*(site(f"{name}.example", feed=page, other=page) for name in names))
    sources = [*feeds(*names), *feeds(*names, path="other")]
    result = crawl(web, "slow", sources=sources, project=project_with(SLOW_SPIDER))
    assert result.stats["walsh/sources/fetched"] == len(sources)
    assert web.most_open_connections == 1
    judge(result)
    rows = rows_of(crawl, "SELECT max(duration), max(delay) FROM requests WHERE purpose = 'target'")
    assert max(rows[0]) < BLOCKED


def test_the_next_request_is_sent_while_a_document_is_read(direct_web, crawl):
    """No process reads the document; the crawl asks the other host, and then is stopped."""
    web = direct_web(site("a.example"), site("b.example"))
    sources = ["http://a.example/feed", "http://b.example/feed"]
    running = crawl.start(web, sources=sources, settings=trouble("FrozenReading"))
    assert web.wait_for(lambda log: sum(hit.path == "/feed" for hit in log) == 2)
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait().stats["walsh/sources/deferred"] == 2


# Hosts that cannot be reached, a stopped crawl, and a machine in trouble (decisions 28, 29).

OPERATOR = Site("operator.example", "", {"/blocklist.json": blocklist()})
SHORT = {"WALSH_BLOCKLIST_URL": LIST_URL} | trouble("ImpatientConnections")


def outcomes(result):
    return dict(rows_of(result, "SELECT url, outcome FROM sources"))


def asked(result):
    return rows_of(result, "SELECT url, status, error FROM requests ORDER BY id")


@pytest.mark.parametrize(
    "how", [{"down": Down.DEAD}, {"dns": silent(30.0)}, {"dns": Answer((DEAD,))}], ids=str
)
def test_a_dead_host_costs_one_time_limit_whatever_its_sources(direct_web, crawl, again, how):
    """One attempt a run: one source has failed, four stay due. In the next run the host is last."""
    dead = replace(site("dead.example"), **how)
    alive = [site(f"h{number}.example") for number in range(3)]
    web = direct_web(dead, OPERATOR, *alive)
    bad = [f"http://dead.example/{number}" for number in range(5)]
    good = [f"http://{host.name}/feed" for host in alive]
    first = crawl(web, sources=[*bad, *good], settings=SHORT)
    assert first.stats["walsh/sources/failed"] == 1
    assert first.stats["walsh/sources/deferred"] == 4
    assert first.stats["walsh/sources/fetched"] == 3
    before = asked(first)
    tried = [url for url, _, _ in before if "dead.example" in url]
    assert tried == ["http://dead.example/robots.txt"]
    assert first.exit_code == 0

    second = again(web, sources=[*bad, *good], settings=SHORT)
    hosts = [url.split("/")[2] for url, _, _ in asked(second)[len(before) :]]
    assert hosts.count("dead.example") == 1
    assert hosts[-1] == "dead.example"


@pytest.mark.parametrize("number", [1, 2, 12])
def test_a_machine_that_is_offline_marks_no_source_as_failed(direct_web, crawl, number):
    web = direct_web(*(site(f"h{index}.example") for index in range(number)))
    web.dns = NO_RESOLVER
    sources = [f"http://h{index}.example/feed" for index in range(number)]
    result = crawl(web, sources=sources)
    assert critical_line(result)
    assert result.stats["finish_reason"] == "machine_trouble"
    assert asked(result) == []
    assert outcomes(result) == {}
    assert blamed_hosts(result) == []
    web.dns = None
    web.clear()
    back = crawl(web, sources=sources)
    assert back.stats["walsh/sources/fetched"] == number
    assert_polite(back.log, connections=web.connections)


def closing(host):
    """A host that keeps no connection, so each request needs another descriptor.

    While it answers, the document before is read.
    """
    last = {"Connection": "close"}
    return Site(host, Reply(headers=last), {"/feed": feed(host=host, headers=last, delay=0.5)})


def test_without_descriptors_the_run_ends_and_nothing_is_lost(direct_web, crawl):
    web = direct_web(*(closing(f"h{index}.example") for index in range(6)))
    sources = [f"http://h{index}.example/feed" for index in range(6)]
    result = crawl(web, sources=sources, settings=trouble("NoDescriptors"))
    assert "Too many open files" in critical_line(result)
    fetched = [url for url, outcome in outcomes(result).items() if outcome == "fetched"]
    assert len(fetched) == len(outcomes(result)) < 6
    assert fetched
    assert len(result.items) == 2 * len(fetched)
    assert blamed_hosts(result) == []
    assert [url for url, _, _ in asked(result)] == [hit.url for hit in result.log]
    assert result.stats["finish_reason"] == "machine_trouble"
    second = crawl(web, sources=sources)
    assert {item["source"] for item in second.items} == set(sources) - set(fetched), "still due"


# What servers do on the wire, against a real socket: what is read, what is refused and why.

BODY = feed().content()
QUICK = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "DOWNLOAD_TIMEOUT": 20}


def head(*fields, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/rss+xml", *fields]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


LENGTH = f"Content-Length: {len(BODY)}"
WHOLE = head(LENGTH) + BODY
READ = {
    "bare-lf": [WHOLE.replace(b"\r\n", b"\n")],
    "chunked": [
        head("Transfer-Encoding: chunked", "Trailer: X-Sum"),
        b"%x;note=1\r\n" % len(BODY) + BODY + b"\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    ],
    "large-head": [head("X-Large: " + "x" * 65536, LENGTH) + BODY],
    "cookies": [head(*["Set-Cookie: a=" + "b" * 200] * 400, LENGTH) + BODY],
    "controls": [head("X: a\vb", "Y: a\fb", "Z: a\0b", LENGTH) + BODY],
    "odd-lines": [head("no colon here", "Odd Name: x", " folded", "X: a", "\tb", LENGTH) + BODY],
    "chunked-twice": [
        head(*["Transfer-Encoding: chunked"] * 2),
        b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    ],
    "identity": [head("Transfer-Encoding: identity", LENGTH) + BODY],
    "no-length": [head("Content-Length:") + BODY],
    "surplus": [WHOLE + b"HTTP/1.1 200 OK\r\n\r\nnobody asked for this"],
}
#: Redirects whose Location has a control character, as a header has none.
CONTROLLED = {
    name: [head(f"Location: /a{character}b", "Content-Length: 0", status="301 Moved")]
    for name, character in (
        ("vt", "\v"),
        ("ff", "\f"),
        ("nul", "\0"),
        ("cr", "\r"),
        ("soh", "\x01"),
    )
}
FIELDS = b"X-Field: yes\r\n"
REFUSED = {
    "folded": ([head("X: 1")[:-2], *[b" more\r\n" * 2000] * 50], "the head of the response is"),
    "crumbs": ([head(*["Set-Cookie: a"] * 5000, LENGTH) + BODY], "has more than 500 lines"),
    "jar": ([head()[:-2], *[b"Set-Cookie: a=b\r\n" * 9000] * 50], "the head of the response is"),
    "trailers": (
        [head("Transfer-Encoding: chunked") + b"0\r\n", *[FIELDS * 9000] * 50],
        "a line of the chunked body is too long",
    ),
    "switching": ([head("Upgrade: x", status="101 Switching")], "the response is not HTTP"),
    "garbage": ([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "the response is not HTTP"),
    "wordy": ([head("Content-Length: 5", "Content-Length: 6")], "the response is not HTTP"),
    "cut": ([head(LENGTH) + BODY[:-9]], "ended before it was complete"),
    "unpaired": (
        [head("Transfer-Encoding: chunked") + b"zz\r\nbody\r\n"],
        "ended before it was complete",
    ),
    "stalled": ([head(LENGTH) + BODY[:9], 60.0], "less than 100 bytes per second came for 1 s"),
    "dripping": ([head(LENGTH), *[0.2, b"<"] * 99], "less than 100 bytes per second came for 1 s"),
    "dripping-head": ([b"HTTP", *[0.2, b"/"] * 99], "less than 100 bytes per second came for 1 s"),
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


def test_a_location_with_a_control_character_fails_once(direct_web, crawl):
    web = direct_web(*(site(f"{name}.example", feed=Raw(raw)) for name, raw in CONTROLLED.items()))
    result = crawl(web, sources=[f"http://{name}.example/feed" for name in CONTROLLED])
    for name, (outcome, detail) in reasons(result).items():
        assert outcome == "failed"
        assert f"{name}.example answered 301 with a Location that cannot be requested" in detail
    assert len(paths(result.log)) == 2 * len(CONTROLLED)
    assert "bytearray" not in result.stderr


def test_garbage_is_quoted_as_text(direct_web, crawl):
    web = direct_web(site("ssh.example", feed=Raw(REFUSED["garbage"][0])))
    result = crawl(web, sources=["http://ssh.example/feed"])
    assert "'SSH-2.0-OpenSSH_9.6'" in reasons(result)["ssh"][1]
    assert "bytearray" not in result.stderr


def test_a_request_on_a_closed_connection_is_repeated_later(direct_web, crawl):
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

    In truth these are 20 s in the first run, and 7 s, a wait of 7 s, and 20 s in the next.
    """
    slowly = Raw([b"HTTP/1.1 200 OK\r\n\r\n", *[0.2, b"#"] * 200])
    pages = {f"/{name}": slowly for name in "abc"}
    web = direct_web(Site("slow.example", slowly, pages), site("blog.example"))
    sources = ["http://blog.example/feed", *(f"http://slow.example{path}" for path in pages)]
    settings = trouble("ImpatientBodies") | {"WALSH_BACKOFF_BASE": 0.01}
    first = crawl(web, sources=sources, settings=settings)
    asked = [hit.path for hit in first.log if hit.host == "slow.example"]
    assert set(asked) == {"/robots.txt"}
    assert log_lines(first, "slow.example", "too slowly")
    assert (first.stats["walsh/sources/fetched"], first.stats["walsh/sources/deferred"]) == (1, 3)
    second = again(web, sources=sources, settings=settings)
    later = [hit for hit in second.log if hit.host == "slow.example"]
    assert len([hit for hit in later if hit.path in pages]) == 1
    assert log_lines(second, "slow.example", "too slowly")
    assert second.stats["walsh/sources/failed"] == 1
    assert rows_of(second, "SELECT host FROM hosts WHERE unreachable") == []
    judge(second, robots_first=False)
