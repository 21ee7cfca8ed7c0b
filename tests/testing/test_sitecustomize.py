"""Processes find a web without a proxy by its environment: plain ones, and children of a fork."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.helpers import LONGEST
from walsh_scrapy.testing import Answer, Certificate, Site, assert_polite, silent
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.site import DEAD, NO_RESOLVER, OWN, REFUSED, UNKNOWN

pytestmark = pytest.mark.crawl

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
            assert process.wait(LONGEST) == 0, (tmp_path / "out").read_text()
        return (tmp_path / "out").read_text().splitlines()

    return run


NAMES = ("a", "b", "c", "six")


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
    assert [each.host for each in web.connections] == [f"{name}.example" for name in NAMES]
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


def test_a_machine_without_a_resolver(direct_web, run):
    web = direct_web(Site("a.example"))
    web.dns = NO_RESOLVER
    failed = ["Temporary failure in name resolution"] * 2
    assert lookups(run, web, "a.example 80 0", "nobody.example 80 0") == [failed, failed]


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
    assert [(each.name, each.addresses, each.error) for each in web.lookups] == [
        ("a.example", ("192.0.2.1",), 0),
        ("a.example", (), socket.EAI_NONAME),
        ("a.example", (own,), 0),
        ("a.example", (own,), 0),
    ]
    times = [moment for each in web.lookups for moment in (each.started, each.ended)]
    assert sorted([*times, before, time.monotonic()])[1:-1] == times
    web.clear()
    assert web.lookups == []


def test_silent_and_slow_resolvers(direct_web, run):
    web = direct_web(
        Site("silent.example", dns=silent(0.1)), Site("slow.example", dns=Answer(delay=0.1))
    )
    lookups(run, web, "silent.example 80 0", "slow.example 80 0")
    assert [(each.name, each.error) for each in web.lookups] == [
        *[("silent.example", socket.EAI_AGAIN)] * 3,
        *[("slow.example", 0)] * 3,
    ]
    assert all(each.ended - each.started >= 0.1 for each in web.lookups)
    assert silent().delay == 10.0


def test_the_first_of_two_addresses_may_refuse_or_be_dead(direct_web, run):
    page = {"/": "alive"}
    web = direct_web(
        Site("refused.example", pages=page, dns=Answer((REFUSED, OWN))),
        Site("dead.example", pages=page, dns=Answer((DEAD, OWN))),
    )
    program = "import socket; socket.setdefaulttimeout(0.5)\n" + FETCH
    assert run(web, program, "http://refused.example/", "http://dead.example/") == ["alive"] * 2


def test_proxies_of_the_environment_are_put_aside(direct_web, run):
    web = direct_web(Site("a.example", pages={"/": "a"}))
    proxies = {"http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    assert run(web, FETCH, "http://a.example/", more=proxies | web.environment) == ["a"]


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


def test_a_crawl_of_this_project(direct_web, crawl):
    feed = rss("Blog", ["One"], "http://a.example/")
    web = direct_web(Site("a.example", "", {"/feed": feed}))
    result = crawl(web, sources=["http://a.example/feed"])
    assert [item["title"] for item in result.items] == ["One"], result.stderr
    assert [each.host for each in result.connections] == ["a.example"]
    assert_polite(result.log, connections=result.connections)
