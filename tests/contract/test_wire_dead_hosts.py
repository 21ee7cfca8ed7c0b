"""Hosts that cannot be reached, a stopped crawl, and a machine in trouble (decisions 28, 29)."""

from dataclasses import replace

import pytest

from tests.helpers.sites import LIST_URL, blocklist, critical_line, feed, rows_of, site, trouble
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import DEAD, NO_RESOLVER, Answer, Down, silent
from walsh_scrapy.testing.web import Reply, Site

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
    good = [f"http://{each.name}/feed" for each in alive]
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
    third = again(web, sources=[*bad, *good], settings=SHORT)
    assert third.stats["walsh/sources/deferred"] == 5
    assert third.stats["walsh/sources/fetched"] == 3


def test_a_port_that_refuses_costs_no_page_of_another_port(direct_web, crawl):
    web = direct_web(site("h.example"))
    sources = ["http://h.example:1/x", "https://h.example/y", "http://h.example/feed"]
    result = crawl(web, sources=sources)
    assert outcomes(result) == dict(zip(sources, ("failed", "failed", "fetched"), strict=True))
    assert "http://h.example:1/x failed: h.example refused the connection" in result.stderr


@pytest.mark.parametrize("number", [2, 12])
def test_a_machine_that_is_offline_marks_no_source_as_failed(direct_web, crawl, number):
    web = direct_web(*(site(f"h{each}.example") for each in range(number)))
    web.dns = NO_RESOLVER
    sources = [f"http://h{each}.example/feed" for each in range(number)]
    result = crawl(web, sources=sources)
    assert critical_line(result)
    assert result.stats["finish_reason"] == "machine_trouble"
    assert asked(result) == []
    assert outcomes(result) == {}
    assert rows_of(result, "SELECT * FROM hosts WHERE refusals OR unreachable OR hold_until") == []
    web.dns = None
    web.clear()
    back = crawl(web, sources=sources)
    assert back.stats["walsh/sources/fetched"] == number
    assert_polite(back.log, connections=web.connections)


def closing(host):
    """A host that keeps no connection, so each request needs another descriptor."""
    last = {"Connection": "close"}
    return Site(host, Reply(headers=last), {"/feed": feed(host=host, headers=last)})


def test_without_descriptors_the_run_ends_and_nothing_is_lost(direct_web, crawl):
    web = direct_web(*(closing(f"h{each}.example") for each in range(6)))
    sources = [f"http://h{each}.example/feed" for each in range(6)]
    result = crawl(web, sources=sources, settings=trouble("NoDescriptors"))
    assert "Too many open files" in critical_line(result)
    fetched = [url for url, outcome in outcomes(result).items() if outcome == "fetched"]
    assert len(fetched) == len(outcomes(result)) < 6
    assert fetched
    assert len(result.items) == 2 * len(fetched)
    assert rows_of(result, "SELECT * FROM hosts WHERE refusals OR unreachable OR hold_until") == []
    assert [url for url, _, _ in asked(result)] == [hit.url for hit in result.log]
    assert result.stats["finish_reason"] == "machine_trouble"
    second = crawl(web, sources=sources)
    assert {item["source"] for item in second.items} == set(sources) - set(fetched), "still due"
