"""A host without a valid certificate gets no request (decision 22)."""

import base64
import contextlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from scrapy.settings import Settings

from tests.helpers.relay import Relay
from tests.helpers.sites import (
    LIST_URL,
    blamed_hosts,
    blocklist,
    critical_line,
    feed,
    judge,
    log_lines,
    paths,
    refusal,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.crawl.network import proxies_of
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import REFUSED, UNKNOWN, Answer, Down
from walsh_scrapy.testing.web import Certificate, Site, redirect

BAD = {
    "expired.example": (Certificate.EXPIRED, "expired"),
    "wrong.example": (Certificate.WRONG_NAME, "another host"),
    "nameless.example": (Certificate.NAMELESS, "another host"),
    "stranger.example": (Certificate.UNKNOWN_CA, "not trust"),
    "incomplete.example": (Certificate.INCOMPLETE, "is signed by 'Testing CA"),
    "itself.example": (Certificate.SELF_SIGNED, "self-signed"),
}


def secure(host, kind=Certificate.GOOD, robots="", **pages):
    return replace(site(host, robots, **pages), tls=kind)


def handshakes(result, host):
    return [connection.handshake for connection in result.connections if connection.host == host]


#: Against verification; the class cannot even be imported, and is never used.
FORCED = {
    "DOWNLOAD_VERIFY_CERTIFICATES": False,
    "DOWNLOADER_CLIENTCONTEXTFACTORY": f"{__name__}.Blind",
    "WALSH_ROBOTS_UNREACHABLE": "disallow",
}
OPERATOR = Site(
    "operator.example",
    pages={"/blocklist.json": blocklist("good.example")},
    tls=Certificate.WRONG_NAME,
)


@pytest.mark.parametrize("settings", [{}, FORCED], ids=["default", "forced"])
def test_only_hosts_with_a_valid_certificate_are_read(direct_web, crawl, settings):
    """A crawl of one good host, one that leads to a bad one, several bad ones, and a blocklist.

    Without any blocklist the run has failed.
    """
    bad = [secure(host, kind) for host, (kind, _) in BAD.items()]
    web = direct_web(
        *bad,
        OPERATOR,
        secure("good.example", robots="User-agent: *\nDisallow: /no\n"),
        secure("old.example", feed=redirect("https://lapsed.example/feed")),
        secure("lapsed.example", Certificate.EXPIRED),
    )
    sources = [f"https://{host}/feed" for host in (*BAD, "old.example", "good.example")]
    given = settings | {"WALSH_BLOCKLIST_URL": LIST_URL.replace("http:", "https:")}
    result = crawl(web, sources=sources, settings=given)
    assert (result.exit_code, result.stats["walsh/problem"]) == (1, "no_blocklist")
    assert {hit.host for hit in result.log} == {"good.example", "old.example"}
    assert [hit.path for hit in result.log if hit.host == "good.example"] == [
        "/robots.txt",
        "/feed",
    ]
    shaken = handshakes(result, "good.example")
    assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
    assert result.stats["walsh/entries/new"] == len(result.items) == 2
    # Each reason names its host, and no request was retried.
    rows = rows_of(result, "SELECT url, outcome, detail FROM sources")
    told = {url.split("/")[2]: (outcome, detail) for url, outcome, detail in rows}
    assert told.pop("good.example") == ("fetched", "")
    assert told.keys() == {"old.example", *BAD}
    assert "lapsed.example" in told["old.example"][1]
    for host, (_, flaw) in BAD.items():
        outcome, detail = told[host]
        assert outcome == "failed"
        assert re.search(f"{host} .*{flaw}", detail)
        assert log_lines(result, f"WARNING https://{host}/feed", detail)
        assert handshakes(result, host) == ["failed"]
    assert result.stats["walsh/sources/failed"] == len(BAD) + 1
    assert "Traceback" not in result.stderr
    assert log_lines(result, "could not be fetched", "operator.example")
    judge(result)


NO_TLS = {
    "expired.example": "TLS: the certificate of expired.example has expired",
    "alert.example": "TLS: no secure connection with alert.example: ",
    "mute.example": "mute.example did not answer the TLS handshake in 1 s",
    "new.example": "TLS: no secure connection with new.example: ",
    "refused.example": "refused.example refused the connection",
}


def test_a_failed_handshake_or_connection_is_tried_once_a_run(direct_web, crawl, again):
    """Each has five sources, and is well in the next run."""
    web = direct_web(
        secure("expired.example", Certificate.EXPIRED),
        replace(secure("alert.example"), down=Down.ALERT),
        replace(secure("mute.example"), down=Down.MUTE),
        replace(secure("new.example"), tls_version="1.3"),
        replace(site("refused.example"), dns=Answer((REFUSED,))),
        site("blog.example"),
    )
    sources = [f"https://{host}/{name}" for host in NO_TLS for name in ("feed", *"abcd")]
    sources += ["http://blog.example/feed"]
    settings = {"DOWNLOAD_TLS_MAX_VERSION": "TLSv1.2"} | trouble("ImpatientConnections")
    first = crawl(web, sources=sources, settings=settings)
    counts = {name: first.stats[f"walsh/sources/{name}"] for name in ("fetched", "failed")}
    assert counts == {"fetched": 1, "failed": 5}
    assert first.stats["walsh/sources/deferred"] == 20
    contacted = [
        connection.host for connection in first.connections if connection.host != "blog.example"
    ]
    assert sorted(contacted) == sorted(NO_TLS.keys() - {"refused.example"})
    asked = rows_of(first, "SELECT host, url, error FROM requests WHERE error != ''")
    assert sorted(host for host, _, _ in asked) == sorted(NO_TLS)
    for host, url, error in asked:
        assert url == f"https://{host}/robots.txt"
        assert error.startswith(NO_TLS[host])
        assert first.stderr.count(f" failed: {error}\n") == 1
        assert f"INFO https://{host}/robots.txt" not in first.stderr
    counted = dict(rows_of(first, "SELECT host, refusals + unreachable FROM hosts"))
    assert counted == dict.fromkeys((*NO_TLS, "blog.example"), 0) | {"mute.example": 1}
    assert rows_of(first, "SELECT host FROM hosts WHERE hold_until") == []

    web.add(*(secure(host) for host in NO_TLS))
    second = again(web, sources=sources[::5], settings=settings)
    assert second.stats["walsh/sources/fetched"] == 6
    judge(second, robots_first=False)


# What users behind a proxy rely on: it looks up the names, and gets the credentials; nobody else.
#
# The proxy is a `LoopbackWeb`. A `DirectWeb` beside it has the names of the machine, the proxy's
# among them, and a host for which no proxy is to be used.

NEAR = Site("proxy.example", dns=Answer(("127.0.0.1",)))
BASIC = f"Basic {base64.b64encode(b'me:secret').decode()}"
SETTINGS = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.5}


def test_a_host_with_an_underscore_is_read_over_https(direct_web, crawl):
    url = "https://my_shop.example/feed"
    result = crawl(direct_web(secure("my_shop.example")), sources=[url])
    assert url in {hit.url for hit in result.log}


def behind(port, name="proxy.example", **more):
    """The environment of a user whose proxy listens on a port, and wants his name."""
    url = f"http://me:secret@{name}:{port}"
    return {"http_proxy": url, "https_proxy": url, "no_proxy": "near.example"} | more


def without_credentials(hits):
    """The hits as if the proxy had wanted no credentials, for the judge."""
    for hit in hits:
        kept = (header for header in hit.headers if header[0].lower() != "proxy-authorization")
        yield replace(hit, headers=tuple(kept))


def test_a_crawl_through_a_proxy(loopback_web, direct_web, crawl):
    proxy = loopback_web(
        site("plain.example"),
        replace(site("secure.example", other="no feed"), tls=Certificate.GOOD),
        site("closed.example"),
        site("old.example", feed=redirect("https://secure.example/other")),
        # To us they are public: their addresses are known to the proxy only.
        site("inside.example", feed=redirect("http://127.0.0.1:9/feed")),
        site("meta.example", feed=redirect("http://169.254.169.254/latest/meta-data/")),
        site("hop.example", feed=redirect("http://near.example/hop")),
    )
    web = direct_web(site("near.example", hop="private"), NEAR)
    hosts = ("plain", "old", "inside", "meta", "hop", "near")
    sources = [f"http://{host}.example/feed" for host in hosts]
    sources += ["https://secure.example/feed", "https://closed.example/feed"]
    certificates = {"SSL_CERT_FILE": proxy.environment["SSL_CERT_FILE"]}
    result = crawl(
        web,
        sources=sources,
        settings=SETTINGS,
        environment=behind(proxy.port, **certificates),
    )
    assert result.exit_code == 0
    assert {lookup.name for lookup in web.lookups} == {"proxy.example", "near.example"}
    log = sorted([*web.log, *proxy.log], key=lambda hit: hit.started)
    assert_polite(without_credentials(log), connections=proxy.connections, declared=sources)
    assert web.most_open_connections == 1

    wants = [hit for hit in proxy.log if hit.scheme == "http" or hit.method == "CONNECT"]
    assert {hit.header("Proxy-Authorization") for hit in wants} == {BASIC}
    others = [hit for hit in log if hit not in wants]
    assert {hit.header("Proxy-Authorization") for hit in others} == {None}
    assert sorted({hit.url for hit in others}) == [
        "http://near.example/feed",
        "http://near.example/robots.txt",
        "https://secure.example/feed",
        "https://secure.example/other",
        "https://secure.example/robots.txt",
    ]
    tunnels = [hit for hit in proxy.log if hit.method == "CONNECT"]
    assert {(hit.host, hit.status) for hit in tunnels} == {
        ("secure.example", 200),
        ("closed.example", 501),
    }
    assert [connection.handshake for connection in proxy.connections].count("full") == 1
    assert paths(wants, "plain.example") == ["plain.example/robots.txt", "plain.example/feed"]

    ends = {
        url: (end, detail)
        for url, end, detail in rows_of(result, "SELECT url, outcome, detail FROM sources")
    }
    outcome, detail = ends["https://closed.example/feed"]
    refusal = f"the proxy proxy.example:{proxy.port} opens no tunnel to closed.example"
    assert (outcome, detail.endswith(f"{refusal}: 501 Not Implemented")) == ("failed", True)
    for host in ("inside", "meta", "hop"):
        assert ends[f"http://{host}.example/feed"][0] == "denied by privatehosts"
    for url in ("http://plain.example/feed", "http://near.example/feed"):
        assert ends[url] == ("fetched", "")
    assert ends["https://secure.example/feed"] == ("fetched", "")
    assert rows_of(result, "SELECT host FROM hosts WHERE unreachable") == []


def proxy_settings(**environment):
    """The proxy that each scheme has in an environment: host, port, credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "REQUEST_METHOD"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        return proxies_of(Settings())


@pytest.mark.parametrize(
    ("value", "host", "port", "credentials"),
    [
        ("127.0.0.1:3128", "127.0.0.1", 3128, None),
        ("proxy.example", "proxy.example", 80, None),
        ("localhost:3128/", "localhost", 3128, None),
        ("//127.0.0.1:3128", "127.0.0.1", 3128, None),
        ("[::1]:3128", "::1", 3128, None),
        ("me:secret@127.0.0.1:3128", "127.0.0.1", 3128, BASIC.encode()),
        ("me:secret@[::1]:3128", "::1", 3128, BASIC.encode()),
        ("http://me:secret@[::1]:3128", "::1", 3128, BASIC.encode()),
        ("HTTP://127.0.0.1:3128", "127.0.0.1", 3128, None),
    ],
)
@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"])
def test_a_proxy_without_a_scheme_is_reached_by_http(name, value, host, port, credentials):
    (proxy,) = proxy_settings(**{name: value}).values()
    assert proxy == (host, port, credentials)


def test_a_crawl_through_a_proxy_without_a_scheme(loopback_web, crawl):
    proxy = loopback_web(replace(site("secure.example"), tls=Certificate.GOOD))
    address = proxy.environment["http_proxy"].removeprefix("http://")
    environment = dict(proxy.environment) | {"https_proxy": address}
    result = crawl(proxy, sources=["https://secure.example/feed"], environment=environment)
    assert result.exit_code == 0
    assert "https://secure.example/feed" in {hit.url for hit in proxy.log}


@pytest.mark.parametrize("url", ["https://127.0.0.1:3128", "socks5://127.0.0.1", "http://:3128"])
def test_a_proxy_that_cannot_be_used_stops_the_start(direct_web, crawl, url):
    web = direct_web(site("plain.example"))
    given = {"https_proxy": url, "no_proxy": "plain.example"}
    line = refusal(crawl(web, sources=["http://plain.example/feed"], environment=given))
    assert f"https_proxy is {url!r}" in line


@pytest.mark.parametrize("answer", [Answer((REFUSED,)), UNKNOWN], ids=["refused", "unknown"])
def test_an_unreachable_proxy_is_no_failure_of_a_host(direct_web, crawl, answer):
    web = direct_web(Site("proxy.example", dns=answer))
    result = crawl(
        web,
        sources=["http://plain.example/feed", "https://secure.example/feed"],
        environment=behind(3128),
    )
    assert_nobodys_failure(result, "proxy.example: ")
    assert {lookup.name for lookup in web.lookups} == {"proxy.example"}
    for table in ("sources", "requests", "robots"):
        assert rows_of(result, f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_dies_is_no_failure_of_a_host(loopback_web, crawl, scheme):
    hosts = [f"h{number}.example" for number in range(6)]

    def last(hit):
        if hit.host == "h2.example":
            front.refuse()
        return feed(host=hit.host, headers={"Connection": "close"})

    kind = {"tls": Certificate.GOOD} if scheme == "https" else {}
    web = loopback_web(*(replace(site(host, feed=last), **kind) for host in hosts))
    with Relay("127.0.0.1", web.port) as front:
        result = crawl(
            web,
            sources=[f"{scheme}://{host}/feed" for host in hosts],
            settings=SETTINGS,
            environment=behind(front.port, "127.0.0.1"),
        )
    assert_nobodys_failure(result, "127.0.0.1: 127.0.0.1 refused the connection")
    assert rows_of(result, "SELECT DISTINCT outcome FROM sources") == [("fetched",)]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_other_credentials_ends_the_run(loopback_web, crawl, scheme):
    """Its 407 is no answer of a host: nobody has failed, and no robots.txt is known."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, ThreadPoolExecutor(1) as threads:
        threads.submit(refuse, proxy)
        result = crawl(
            loopback_web(),
            sources=[f"{scheme}://h{number}.example/feed" for number in range(3)],
            settings=SETTINGS,
            environment=behind(proxy.getsockname()[1], "127.0.0.1"),
        )
        proxy.shutdown(socket.SHUT_RDWR)
    assert_nobodys_failure(result, "127.0.0.1: it wants other credentials (407) for h")
    for table in ("sources", "robots", "requests"):
        assert rows_of(result, f"SELECT * FROM {table}") == []


def refuse(proxy):
    """Take connections, and answer each with 407."""
    with contextlib.suppress(OSError):
        while True:
            with proxy.accept()[0] as taken:
                taken.recv(65_536)
                taken.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")


def assert_nobodys_failure(result, why):
    """One line says what is wrong with the proxy, and no host is charged with it."""
    assert f"the proxy {why}" in critical_line(result)
    assert result.stats["finish_reason"] == "machine_trouble"
    assert blamed_hosts(result) == []
