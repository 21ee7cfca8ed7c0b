"""R4 by address (decision 5): where a request is sent, and the line of the names of an address."""

import heapq
import itertools
import socket
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.settings import Settings

from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.hosttimes import NO_SERVER, Server
from walsh_scrapy.politeness.hostqueue import GateQueue, HostQueues
from walsh_scrapy.politeness.servers import Lines, Servers
from walsh_scrapy.runtime.requests import mark, marks_of
from walsh_scrapy.runtime.startup import _problems
from walsh_scrapy.state.ledger import LeaseResult
from walsh_scrapy.wire.names import Addresses
from walsh_scrapy.wire.unreachable import name_not_found

HOSTS = 200
LONGEST = 900.0
OURS = "walsh_scrapy.downloadhandler.DownloadHandler"
HTTP11 = "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"
FOUND = Addresses(
    tuple((socket.AF_INET, 1, 6, "", (each, 80)) for each in ("192.0.2.9", "192.0.2.1"))
)


class Network:
    """Finds what a test says, or raises it."""

    def __init__(self, found):
        self.found = found

    async def find(self, _url):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def options(**settings):
    given = {f"WALSH_{name}": value for name, value in settings.items()}
    return Options.from_settings(Settings({"WALSH_PACE_BY": "address"} | given))


def looked_up(servers, **meta):
    """A request after the look-up, which needs no event loop here."""
    request = Request("http://a.example/feed", meta=meta)
    with pytest.raises(StopIteration):
        servers.look_up(request).send(None)
    return request


def test_a_request_is_sent_to_the_addresses_that_were_found_but_for_shared_ones():
    servers = Servers(options(SHARED_NETWORKS=["192.0.2.8/29"], MIN_INTERVAL=3), Network(FOUND))
    request = looked_up(servers)
    assert marks_of(request).found == FOUND
    assert servers.of(request) == (("@192.0.2.1",), 3.0)
    assert servers.address(request) is None, "it was not sent yet"
    for connected, address in (("192.0.2.1", "192.0.2.1"), ("192.0.2.9", None)):
        mark(request, connected=connected)
        assert servers.address(request) == address


def test_a_name_without_address_is_looked_up_once_and_fails_where_it_is_connected():
    error = name_not_found("a.example", socket.gaierror(socket.EAI_NONAME, ""))
    servers = Servers(options(), Network(error))
    request = looked_up(servers)
    assert marks_of(request).found is error
    assert servers.of(request) is NO_SERVER


def test_by_host_no_name_is_looked_up():
    servers = Servers(options(PACE_BY="host"), Network(AssertionError()))
    assert servers.of(looked_up(servers)) is NO_SERVER


def test_a_request_with_a_proxy_of_its_own_is_denied():
    servers = Servers(options(), Network(FOUND))
    with pytest.raises(Denied, match="no request may have a proxy"):
        looked_up(servers, proxy="http://proxy.example:8080")


def test_a_request_that_waits_in_a_gate_is_looked_up_again_at_its_turn(monkeypatch):
    """By then its name may have another address."""
    moved, network, found = Addresses(FOUND.infos[:1]), Network(FOUND), []
    moments = itertools.count(0.0, 60.0)  # so each wait is over at once
    context = SimpleNamespace(
        options=options(),
        host=lambda _url: "a.example",
        clock=SimpleNamespace(monotonic=lambda: next(moments)),
    )
    engine = SimpleNamespace(is_closing=False)
    scheduler = SimpleNamespace(has_handed_out=lambda _request: False)
    crawl = SimpleNamespace(
        context=context,
        engine=engine,
        queues=HostQueues(GateQueue(context, engine, None), scheduler),
        put_off=None,
        pauses=None,
        in_flight=SimpleNamespace(quiet=nullcontext),
        servers=Servers(context.options, network),
    )

    def lease(request, _wait):
        found.append(marks_of(request).found)
        network.found = moved
        return 1.0 if len(found) == 1 else 0.0

    gate = PacingMiddleware(crawl)
    monkeypatch.setattr(gate, "_lease", lease)
    with pytest.raises(StopIteration):
        gate.process_request(Request("http://a.example/feed")).send(None)
    assert found == [FOUND, moved]


def test_no_place_in_a_line_defers_a_request():
    servers = Servers(options(MAX_WAIT=5), Network(FOUND))
    turn = LeaseResult(0.5, address="@192.0.2.1")
    waits = [servers.wait(str(number), NO_SERVER, turn, 0.0) for number in range(9)]
    assert waits == [0.5, 1.5, 2.5, 3.5, 4.5, *[5.0] * 4]
    servers.wait("0", Server(("@192.0.2.1",)), LeaseResult(0.0), 0.0)
    assert servers.wait("1", NO_SERVER, turn, 0.0) == 0.5, "the first had its turn"
    host = LeaseResult(60.0)
    assert servers.wait("9", NO_SERVER, host, 0.0) == 60.0, "the host itself asks for more"


@pytest.mark.parametrize("given", ["192.0.2.1/24", ["nonsense"], [7.5]])
def test_what_is_no_network_is_refused(given):
    with pytest.raises(BadSetting, match=r"WALSH_SHARED_NETWORKS is .* list of IP networks"):
        options(SHARED_NETWORKS=given)


@pytest.mark.parametrize(
    ("settings", "environment", "problems"),
    [
        ({}, {}, 0),
        ({}, {"https_proxy": "http://127.0.0.1:9"}, 1),
        ({"HTTPPROXY_ENABLED": False}, {"https_proxy": "http://127.0.0.1:9"}, 0),
        ({"DOWNLOAD_HANDLERS": {"http": OURS, "https": HTTP11}}, {}, 1),
    ],
)
def test_it_is_refused_where_addresses_would_not_be_known(
    settings, environment, problems, monkeypatch
):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    handlers = {"DOWNLOAD_HANDLERS": {"http": OURS, "https": OURS}}
    found = list(_problems(Settings({"WALSH_PACE_BY": "address"} | handlers | settings)))
    assert len(found) == problems


def test_each_further_host_asks_one_spacing_later():
    lines = Lines(2.0, LONGEST)
    assert [lines.wait(host, "@x", 0.5, 0.0) for host in "abc"] == [0.5, 2.5, 4.5]
    assert lines.wait("d", "@y", 0.5, 0.0) == 0.5, "another address has a line of its own"
    lines.leave("a", ["@x"])
    assert lines.wait("c", "@x", 0.5, 1.0) == 2.5, "it keeps its place behind the second"
    assert lines.wait("a", "@x", 0.5, 1.0) == 4.5, "it was served, and comes last"


def test_hosts_that_do_not_come_hold_up_nobody():
    lines = Lines(1.0, LONGEST)
    for host in "ab":
        lines.wait(host, "@x", 1.0, 0.0)
    assert lines.wait("c", "@x", 1.0, 6.5) == 2.0, "the first one is gone"
    assert lines.wait("c", "@x", 1.0, 7.5) == 1.0, "so is the second"
    assert lines.wait("a", "@x", 1.0, 7.5) == 2.0, "who comes back comes last"


def test_who_waits_longest_asks_without_looking_at_all_of_the_line():
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

    lines = Lines(1.0, 5.0)
    for number in range(HOSTS):
        lines.wait(str(number), "@x", 0.5, 0.0)
    assert lines.wait(Name("last"), "@x", 0.5, 0.0) == 5.0
    assert Name.compared < 10


@pytest.mark.parametrize("latency", [0.01, 0.3, 2.0])
def test_many_names_ask_a_few_times_each_and_leave_the_address_no_rest(latency):
    """Without lines there are HOSTS / 2 for each, 20,100 in all."""
    lines, ready_at, asked, now = Lines(1.0, LONGEST), 0.0, 0, 0.0
    coming = [(0.0, number) for number in range(HOSTS)]
    while coming:
        now, number = heapq.heappop(coming)
        asked += 1
        if now >= ready_at:
            lines.leave(str(number), ["@x"])
            ready_at = now + latency + 1.0
        else:
            again = lines.wait(str(number), "@x", ready_at - now, now)
            heapq.heappush(coming, (now + again, number))
    assert asked < 12 * HOSTS
    assert now < 1.1 * (HOSTS - 1) * (1.0 + latency)
