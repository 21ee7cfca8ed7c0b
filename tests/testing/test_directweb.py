"""A web without a proxy: each host at its own address, connections and handshakes counted."""

import http.client
import json
import math
import os
import socket
import ssl
import struct
import subprocess
import sys
import time

import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.relay import Client
from walsh_scrapy.testing import (
    Answer,
    Certificate,
    DirectWeb,
    Down,
    Reply,
    Site,
    silent,
)
from walsh_scrapy.testing.authority import CertificateAuthority
from walsh_scrapy.testing.site import DEAD, NO_RESOLVER, OWN, REFUSED, UNKNOWN

SCHEMES = ["http", "https"]


def site(name="a.example", page="x", **more):
    return Site(name, pages={"/": page}, tls=Certificate.GOOD, **more)


def all_closed(web, count):
    """Return the connections once there are so many, all of them closed."""
    assert web.wait_for_connections(
        lambda found: (
            len(found) == count and all(connection.closed < math.inf for connection in found)
        ),
        HANG_SECONDS,
    )
    return web.connections


class TestHosts:
    def test_each_host_has_an_address_of_its_own(self, direct_web):
        web = direct_web(site("a.example"), site("b.example"), site("a.example:8080"))
        web.add(site("late.example", "late"))
        hosts = ["a.example", "b.example", "late.example"]
        addresses = [web.address(host) for host in hosts]
        assert len(set(addresses)) == 3
        assert all(address.startswith("127.") and address != "127.0.0.1" for address in addresses)
        assert Client(web).get("late.example") == (200, b"late")

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_a_page_is_served_and_logged_with_its_url(self, direct_web, scheme):
        web = direct_web(site(page="one"), site("b.example", "two"))
        client = Client(web)
        assert client.get("a.example", scheme=scheme) == (200, b"one")
        assert client.get("b.example", scheme=scheme) == (200, b"two")
        assert client.get("a.example", "/none", scheme)[0] == 404
        assert [(hit.url, hit.status) for hit in web.log] == [
            (f"{scheme}://a.example/", 200),
            (f"{scheme}://b.example/", 200),
            (f"{scheme}://a.example/none", 404),
        ]

    @pytest.mark.parametrize("asked", ["b.example", "nobody.example"])
    def test_the_host_of_another_address_is_misdirected(self, direct_web, asked):
        web = direct_web(site(), site("b.example"))
        assert Client(web).get("a.example", asked=asked)[0] == 421
        assert [(hit.host, hit.status) for hit in web.log] == [(asked, 421)]
        assert web.connections[0].host == "a.example"

    def test_an_address_that_no_site_has_is_misdirected(self, direct_web):
        web = direct_web(site())
        assert Client(web).get("a.example", address="127.9.9.9")[0] == 421

    def test_hosts_at_one_address_have_certificates_of_their_own(self, direct_web):
        shared = Answer(["127.0.0.9"])
        web = direct_web(site(page="a", dns=shared), site("b.example", "b", dns=shared))
        client = Client(web)
        for scheme in SCHEMES:
            assert client.get("a.example", scheme=scheme, address="127.0.0.9") == (200, b"a")
            assert client.get("b.example", scheme=scheme, address="127.0.0.9") == (200, b"b")
        assert [connection.host for connection in web.connections] == ["a.example", "b.example"] * 2

    @pytest.mark.parametrize("device", [b"lo", b""])
    def test_an_address_that_others_reach_is_not_served(self, direct_web, monkeypatch, device):
        """The kernel keeps them off, or the web does where it may not bind to a device."""
        monkeypatch.setattr("walsh_scrapy.testing.directweb._DEVICE", device)
        web = direct_web(site())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        if own.startswith("127."):
            pytest.skip("this machine has only loopback addresses")
        try:
            with socket.create_connection((own, web.ports["http"]), HANG_SECONDS) as tried:
                got = tried.recv(1)
        except (ConnectionRefusedError, ConnectionResetError):
            got = b""
        assert got == b""
        assert web.log == []
        assert web.connections == []

    def test_a_thousand_hosts_need_few_descriptors(self):
        program = """
import resource
from tests.helpers.relay import Client
from walsh_scrapy.testing import DirectWeb, Site

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sites = [Site(f"h{n}.example", pages={"/": str(n)}) for n in range(1000)]
with DirectWeb(*sites) as web:
    client = Client(web)
    answers = [client.get(site.name) for site in sites]
    assert answers == [(200, str(n).encode()) for n in range(1000)]
    assert len({web.address(site.name) for site in sites}) == 1000
    assert web.most_open_connections == 1
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


class TestConnections:
    def test_a_connection_is_recorded(self, direct_web):
        web = direct_web(site())
        before = time.monotonic()
        connection = Client(web).connection("a.example")
        port = connection.sock.getsockname()[1]
        for _ in range(2):
            connection.request("GET", "/")
            connection.getresponse().read()
        (open_,) = web.connections
        assert before <= open_.opened <= web.log[0].started
        assert open_.closed == math.inf
        connection.close()
        (closed,) = all_closed(web, 1)
        assert web.log[1].ended <= closed.closed <= time.monotonic()
        assert (closed.host, closed.scheme, closed.handshake) == ("a.example", "http", "")
        assert (closed.client, closed.address) == (port, web.address("a.example"))
        assert {hit.client for hit in web.log} == {port}

    def test_the_server_closes(self, direct_web):
        web = direct_web(site(page=Reply("x", headers={"Connection": "close"})))
        connection = Client(web).connection("a.example")
        connection.request("GET", "/")
        connection.getresponse().read()
        all_closed(web, 1)
        connection.close()

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_open_at_once(self, direct_web, scheme):
        web = direct_web(*(site(f"{name}.example") for name in "abc"))
        client = Client(web)
        opened = [client.open(f"{name}.example", scheme) for name in "abc"]
        assert web.wait_for_connections(lambda found: len(found) == 3, HANG_SECONDS)
        for connection in opened:
            connection.close()
        assert web.most_open_connections == 3

    @pytest.mark.parametrize("end", ["plain", "reset", "unread", "unasked"])
    def test_closing_one_and_then_opening_another_is_never_two(self, direct_web, end):
        """The events are in the order of the client, however the server reads them."""
        web = direct_web(site(page="x" * 100_000))
        client = Client(web)
        for _ in range(200):
            opened = client.tcp("a.example")
            if end != "unasked":
                opened.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            if end == "plain":
                while opened.recv(1 << 16).count(b"x") == 1 << 16:
                    pass
            elif end == "reset":
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            opened.close()
        assert len(all_closed(web, 200)) == 200
        assert web.most_open_connections == 1

    def test_clear_keeps_what_is_open(self, direct_web):
        web = direct_web(site())
        client = Client(web)
        client.get("a.example")
        opened = client.open("a.example")
        assert web.wait_for_connections(lambda found: len(found) == 2, HANG_SECONDS)
        web.clear()
        assert [connection.closed for connection in web.connections] == [math.inf]
        assert web.log == []
        opened.close()

    def test_the_connections_to_a_proxy_are_counted_too(self, loopback_web):
        web = loopback_web(site())
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=HANG_SECONDS)
        connection.request("GET", "http://a.example/")
        connection.getresponse().read()
        connection.close()
        (record,) = all_closed(web, 1)
        assert (record.host, record.scheme, record.client) == ("", "http", web.log[0].client)

    def test_a_server_without_descriptors_goes_on_when_it_has_some(self):
        program = """
import os, resource, socket
from tests.helpers.relay import Client
from walsh_scrapy.testing import DirectWeb, Site

with DirectWeb(Site("a.example", pages={"/": "x"})) as web, socket.socket() as client:
    most = max(map(int, os.listdir("/proc/self/fd"))) + 1
    held = [os.dup(0) for _ in range(most)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, 4096))
    client.connect((web.address("a.example"), web.ports["http"]))
    client.sendall(b"GET / HTTP/1.1\\r\\nHost: a.example\\r\\nConnection: close\\r\\n\\r\\n")
    assert not web.wait_for_connections(lambda found: found, 0.05)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


class TestTls:
    @pytest.mark.parametrize("version", ["1.2", "1.3"])
    def test_a_session_is_resumed(self, direct_web, version):
        web = direct_web(site(tls_version=version))
        client = Client(web)
        session = None
        for _ in range(2):
            connection = client.connection("a.example", "https", session=session)
            connection.request("GET", "/")
            connection.getresponse().read()
            assert connection.sock.version() == f"TLSv{version}"
            session = connection.sock.session
            connection.close()
        assert [connection.handshake for connection in web.connections] == ["full", "resumed"]

    def test_each_site_chooses_its_versions(self, direct_web):
        web = direct_web(site(tls_version="1.2"), site("new.example"))
        client = Client(web)
        for host, version in [("a.example", "TLSv1.2"), ("new.example", "TLSv1.3")]:
            with client.open(host, "https") as opened:
                assert opened.version() == version
        client.context.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(ssl.SSLError):
            client.open("a.example", "https")

    @pytest.mark.parametrize("kind", [Certificate.SELF_SIGNED, Certificate.INCOMPLETE])
    def test_a_certificate_that_the_client_rejects(self, direct_web, kind):
        web = direct_web(Site("a.example", tls=kind))
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            Client(web).open("a.example", "https")
        is_incomplete = "local issuer" in caught.value.verify_message
        assert is_incomplete == (kind is Certificate.INCOMPLETE)
        (record,) = all_closed(web, 1)
        assert (record.host, record.scheme, record.handshake) == ("a.example", "https", "failed")
        assert web.log == []

    def test_a_host_without_a_certificate_has_no_https(self, direct_web):
        web = direct_web(Site("plain.example"), site())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Client(web).open("plain.example", "https")
        assert [connection.handshake for connection in all_closed(web, 1)] == ["failed"]

    def test_an_error_of_the_web_itself_is_raised_as_it_closes(self, monkeypatch):
        monkeypatch.setattr(CertificateAuthority, "context", lambda *_: 1 / 0)
        web = DirectWeb(site("a.example")).start()
        opened = Client(web).tcp("a.example", "https")
        assert opened.recv(1) == b""
        opened.close()
        with pytest.raises(ZeroDivisionError):
            web.close()

    def test_the_web_closes_amid_a_handshake(self):
        with DirectWeb(site()) as web, Client(web).tcp("a.example", "https") as opened:
            opened.sendall(b"\x16\x03\x01\x02\x00")
            assert web.wait_for_connections(lambda found: len(found) == 1, HANG_SECONDS)
            web.close()
        assert web.connections[0].closed < math.inf


class TestDown:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_a_dead_host_answers_no_syn(self, direct_web, scheme):
        web = direct_web(site("alive.example"), site("dead.example", down=Down.DEAD))
        web.add(site("later.example", down=Down.DEAD))
        for host in ("dead.example", "later.example"):
            with socket.socket() as tried:
                tried.setblocking(False)
                tried.connect_ex((web.address(host), web.ports[scheme]))
                # The kernel answers a SYN on loopback before `connect` returns, if at all.
                assert connected(tried) is False
        assert Client(web).get("alive.example", scheme=scheme)[0] == 200
        assert [connection.host for connection in web.connections] == ["alive.example"]

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_a_mute_host_accepts_and_says_nothing(self, direct_web, scheme):
        web = direct_web(site(down=Down.MUTE))
        opened = Client(web).tcp("a.example", scheme)
        opened.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        assert web.wait_for_connections(lambda found: len(found) == 1, HANG_SECONDS)
        opened.setblocking(False)
        with pytest.raises(BlockingIOError):
            opened.recv(1)
        opened.close()
        assert [connection.host for connection in all_closed(web, 1)] == ["a.example"]
        assert web.log == []

    @pytest.mark.parametrize("down", [Down.MUTE, Down.ALERT])
    def test_a_client_that_resets_the_connection_is_no_error(self, direct_web, down):
        web = direct_web(site(down=down))
        opened = Client(web).tcp("a.example", "https")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
        all_closed(web, 1)
        web.close()

    def test_an_alert_ends_the_handshake(self, direct_web):
        web = direct_web(site(down=Down.ALERT))
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            Client(web).open("a.example", "https")
        assert [connection.handshake for connection in all_closed(web, 1)] == ["failed"]


def connected(tried):
    """Return whether a socket that does not block is connected."""
    return bool(tried.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1)


class TestLatency:
    @pytest.mark.parametrize(
        ("scheme", "version", "flights"),
        [("http", None, 2), ("https", "1.3", 3), ("https", "1.2", 4)],
    )
    def test_flights(self, direct_web, scheme, version, flights):
        web = direct_web(site(tls_version=version), latency=0.05)
        before = time.monotonic()
        connection = Client(web).connection("a.example", scheme)
        connection.request("GET", "/")
        connection.getresponse().read()
        first = time.monotonic()
        connection.request("GET", "/")
        connection.getresponse().read()
        second = time.monotonic()
        connection.close()
        assert first - before >= 0.05 * flights
        assert second - first >= 0.05


# Processes find a web without a proxy by its environment: plain ones, and children of a fork.

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url).read().decode())
"""


@pytest.fixture(params=["plain", "forked"])
def launch(request):
    """What starts a process: Popen, or the fork server, which has imported Scrapy already."""
    if request.param == "plain":
        return subprocess.Popen
    return request.getfixturevalue("crawl_launcher")


@pytest.fixture
def run(launch, tmp_path):
    """Return a function that runs a program against a web, and returns the lines that it prints."""

    def run(web, program, *arguments, more=None):
        (tmp_path / "program.py").write_text(program)
        environment = os.environ | web.environment
        environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
        with (tmp_path / "out").open("w+b") as out:
            process = launch(
                [sys.executable, "-m", "program", *arguments],
                cwd=tmp_path,
                env=environment | (more or {}),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            assert process.wait(HANG_SECONDS) == 0, (tmp_path / "out").read_text()
        return (tmp_path / "out").read_text().splitlines()

    return run


NAMES = ("a", "b", "c", "six")


@pytest.mark.crawl
def test_urls_need_no_port(direct_web, run):
    web = direct_web(
        Site("a.example", pages={"/": "a"}),
        Site("b.example", pages={"/": "b"}, tls=Certificate.GOOD),
        Site("six.example", pages={"/": "six"}, dns=Answer(("::1",))),
        Site("c.example:8080", pages={"/": "c"}),
    )
    urls = ["http://a.example/", "https://b.example/", "http://c.example:8080/"]
    assert run(web, FETCH, *urls, "http://six.example/") == ["a", "b", "c", "six"]
    assert [hit.url for hit in web.log] == [*urls, "http://six.example/"]
    assert [connection.host for connection in web.connections] == [
        f"{name}.example" for name in NAMES
    ]
    assert web.most_open_connections == 1


CALLS = """
import asyncio, json, socket, sys, time
from socket import getaddrinfo  # a reference of its own

def told(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except socket.gaierror as error:
        return socket.EAI_NONAME == error.errno and "unknown" or error.strerror

async def looped(*arguments):
    return await asyncio.get_running_loop().getaddrinfo(*arguments, type=socket.SOCK_STREAM)

def places(found):
    return found if isinstance(found, str) else [each[4][:2] for each in found]

for line in sys.argv[1:]:
    name, port, family = line.split()
    found = told(getaddrinfo, name, int(port), int(family), socket.SOCK_STREAM)
    also = told(asyncio.run, looped(name, int(port)))
    assert int(family) or places(found) == places(also), (found, also)
    print(json.dumps([places(found), told(socket.gethostbyname, name)]))
"""


def lookups(run, web, *lines):
    return [json.loads(line) for line in run(web, CALLS, *lines)]


BOTH = ("10.0.0.1", "127.0.0.5", "::1", "::ffff:127.0.0.1")


@pytest.mark.crawl
def test_names_lead_to_addresses_and_ports(direct_web, run):
    web = direct_web(
        Site("a.example", tls=Certificate.GOOD),
        Site("both.example", dns=Answer(BOTH)),
        Site("bad.example", dns=Answer((DEAD, REFUSED, OWN))),
        Site("no.example", dns=NO_RESOLVER),
    )
    a, http, https = web.address("a.example"), web.ports["http"], web.ports["https"]
    assert lookups(
        run,
        web,
        "a.example 80 0",
        "A.Example. 443 0",
        "a.example 8080 0",
        f"a.example 80 {int(socket.AF_INET6)}",
        "127.0.0.7 80 0",
        "10.0.0.1 80 0",
        "nobody.example 80 0",
        "no.example 80 0",
    ) == [
        [[[a, http]], a],
        [[[a, https]], a],
        [[[a, 8080]], a],
        ["No address associated with hostname", a],
        [[["127.0.0.7", http]], "127.0.0.7"],
        [[["10.0.0.1", 80]], "10.0.0.1"],
        ["unknown", "unknown"],
        ["Temporary failure in name resolution"] * 2,
    ]
    ((both, first), (bad, _)) = lookups(run, web, "both.example 80 0", "bad.example 443 0")
    assert [address for address, _ in both] == [*BOTH]
    assert (both[0][1], both[1][1], both[3][1], first) == (80, http, http, "10.0.0.1")
    (dead, syn), (refused, closed), (own, alive) = bad
    assert len({dead, refused, own}) == 3
    assert syn == alive == https != closed


@pytest.mark.crawl
def test_a_machine_without_a_resolver(direct_web, run):
    web = direct_web(Site("a.example"))
    web.dns = NO_RESOLVER
    failed = ["Temporary failure in name resolution"] * 2
    assert lookups(run, web, "a.example 80 0", "nobody.example 80 0") == [failed, failed]


@pytest.mark.crawl
def test_answers_change_and_are_logged(direct_web, run):
    web = direct_web(Site("a.example", dns=[Answer(("192.0.2.1",)), UNKNOWN, Answer()]))
    program = """
import socket
for _ in range(4):
    try:
        print(socket.getaddrinfo("A.example.", 80)[0][4][0])
    except socket.gaierror as error:
        print(error.strerror)
"""
    before, own = time.monotonic(), web.address("a.example")
    assert run(web, program) == ["192.0.2.1", "Name or service not known", own, own]
    assert [(lookup.name, lookup.addresses, lookup.error) for lookup in web.lookups] == [
        ("a.example", ("192.0.2.1",), 0),
        ("a.example", (), socket.EAI_NONAME),
        ("a.example", (own,), 0),
        ("a.example", (own,), 0),
    ]
    times = [moment for lookup in web.lookups for moment in (lookup.started, lookup.ended)]
    assert sorted([*times, before, time.monotonic()])[1:-1] == times
    web.clear()
    assert web.lookups == []


@pytest.mark.crawl
def test_silent_and_slow_resolvers(direct_web, run):
    web = direct_web(
        Site("silent.example", dns=silent(0.1)), Site("slow.example", dns=Answer(delay=0.1))
    )
    lookups(run, web, "silent.example 80 0", "slow.example 80 0")
    assert [(lookup.name, lookup.error) for lookup in web.lookups] == [
        *[("silent.example", socket.EAI_AGAIN)] * 3,
        *[("slow.example", 0)] * 3,
    ]
    assert all(lookup.ended - lookup.started >= 0.1 for lookup in web.lookups)
    assert silent().delay == 10.0


@pytest.mark.crawl
def test_the_first_of_two_addresses_may_refuse_or_be_dead(direct_web, run):
    page = {"/": "alive"}
    web = direct_web(
        Site("refused.example", pages=page, dns=Answer((REFUSED, OWN))),
        Site("dead.example", pages=page, dns=Answer((DEAD, OWN))),
    )
    program = "import socket; socket.setdefaulttimeout(0.5)\n" + FETCH
    assert run(web, program, "http://refused.example/", "http://dead.example/") == ["alive"] * 2


@pytest.mark.crawl
def test_proxies_of_the_environment_are_put_aside(direct_web, run):
    web = direct_web(Site("a.example", pages={"/": "a"}))
    proxies = {"http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    assert run(web, FETCH, "http://a.example/", more=proxies | web.environment) == ["a"]


@pytest.mark.crawl
def test_a_crawl_by_the_engine_of_scrapy_itself(direct_web, run):
    """Its resolver asks `gethostbyname` and its connections go to the port of the URL."""
    program = """
import sys
from scrapy import Spider
from scrapy.crawler import CrawlerProcess

class Pages(Spider):
    name, start_urls = "pages", sys.argv[1:]

    def parse(self, response):
        print(response.text)

process = CrawlerProcess({"LOG_ENABLED": False, "TELNETCONSOLE_ENABLED": False})
process.crawl(Pages)
process.start()
"""
    web = direct_web(
        Site("a.example", pages={"/": "a"}),
        Site("b.example", pages={"/": "b"}, tls=Certificate.GOOD),
    )
    assert sorted(run(web, program, "http://a.example/", "https://b.example/")) == ["a", "b"]
