"""R4 by registrable domain, and by address: hosts share spacing and lease, and no hold (5)."""

import json
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tests.helpers.sites import feed, judge, paths, refusal, site
from walsh_scrapy.state import State
from walsh_scrapy.state.auditrecord import GOES_ON
from walsh_scrapy.testing.names import UNKNOWN, Answer
from walsh_scrapy.testing.politeness import assert_polite, violations
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.attest.audit import audit

HOSTS = ("a.site-one.co.uk", "b.site-one.co.uk", "c.site-two.co.uk")
SLOW = "User-agent: *\nCrawl-delay: 2\n"


def domain(host):
    """The judge's own function, which is right for the hosts of these tests."""
    return host.partition(".")[2]


def sources(*hosts):
    return [f"http://{host}/feed" for host in hosts]


def test_by_domain_hosts_under_one_are_never_asked_too_soon_nor_at_once(
    direct_web, crawl, tmp_path
):
    """Two crawls on one state: only the state can prevent that both ask at the same time."""
    cache = tmp_path / "cache"
    cache.mkdir()
    a, b, c = HOSTS
    slow = feed(delay=0.3)
    web = direct_web(site(a, SLOW, feed=slow), site(b, SLOW, feed=slow), site(c))
    options = {
        "settings": {"WALSH_PACE_BY": "domain"},
        "environment": dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TLDEXTRACT_CACHE"), str(cache)),
    }
    running = [crawl.start(web, sources=sources(*hosts), **options) for hosts in ((a, c), (b,))]
    results = [each.wait() for each in running]

    assert [result.exit_code for result in results] == [0, 0]
    assert_polite(web.log, serial=False, pace_by=domain, crawl_delays=web.crawl_delays)
    assert web.most_open_connections <= len(running)
    both = ("robots.txt", "feed")
    assert sorted(paths(web.log)) == sorted(f"{host}/{page}" for host in HOSTS for page in both), (
        "a robots.txt for each host, and nobody was asked for a list of public suffixes"
    )
    assert list(cache.iterdir()) == []


def test_by_domain_a_hold_is_that_of_the_host_name_that_asked_for_it(direct_web, crawl, on_state):
    """Neither a hold of 300 years nor one within the run is one for the rest of a domain."""
    held = Reply(status=404, headers={"Retry-After": "10000000000"})
    busy = Reply(status=503, headers={"Retry-After": "8"})
    apex = "site-one.co.uk"
    web = direct_web(
        *map(site, HOSTS), site(apex, feed=held), site("0.site-one.co.uk", feed=[busy, feed()])
    )
    by_domain = {"WALSH_PACE_BY": "domain"}
    urls = sources(apex, "0.site-one.co.uk", *HOSTS)
    result = crawl(web, sources=[*urls, f"http://{apex}/other"], settings=by_domain)
    asked = paths(result.log)
    assert asked.count(f"{apex}/feed") == 1
    assert f"{apex}/other" not in asked
    last = [f"{host}/feed" for host in HOSTS[:2]]
    assert max(map(asked.index, last)) < len(asked) - 1
    assert asked[-1] == "0.site-one.co.uk/feed"
    rows = json.loads(on_state("hosts", "--json", settings=by_domain).stdout)
    assert {row["host"] for row in rows if row["hold_until"]} == {apex}
    release = ("hosts", "release", apex, "--because", "a mistake")
    released = on_state(*release, settings=by_domain)
    assert released.stdout.startswith(f"{apex} may be asked again; ")


def test_by_domain_other_domains_go_on_meanwhile(direct_web, crawl):
    web = direct_web(*map(site, HOSTS))
    result = crawl(web, sources=sources(*HOSTS), settings={"WALSH_PACE_BY": "domain"})
    judge(result, pace_by=domain)
    asked = [domain(hit.host) for hit in result.log]
    assert sorted(asked) == ["site-one.co.uk"] * 4 + ["site-two.co.uk"] * 2
    assert asked[-2:] == ["site-one.co.uk"] * 2, "the other was done while this one waited"


def test_by_host_as_it_is_by_default_they_are_not_held_to_each_other(direct_web, crawl):
    web = direct_web(*map(site, HOSTS))
    result = crawl(web, sources=sources(*HOSTS))
    judge(result)
    assert violations(result.log, pace_by=domain)


SERVER = "127.0.9.9"
BY_ADDRESS = {"WALSH_PACE_BY": "address"}


def server(host):
    """What the judge takes as one: two of the hosts are at one address."""
    return host if host == HOSTS[2] else SERVER


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_by_address_names_of_one_server_are_never_asked_too_soon_nor_at_once(
    direct_web, crawl, tmp_path, database, request
):
    """Two crawls on one state: only the state can prevent that both ask at the same time."""
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    if database == "postgresql":
        state = request.getfixturevalue("postgresql_url")
    a, b, c = HOSTS
    slow, answer = feed(delay=0.3), Answer((SERVER,))
    shared = (replace(site(host, feed=slow), dns=answer) for host in (a, b))
    web = direct_web(*shared, site(c))
    settings = BY_ADDRESS | {"WALSH_STATE_URL": state}
    parts = (a, c), (b,)
    running = [crawl.start(web, sources=sources(*part), settings=settings) for part in parts]
    results = [each.wait() for each in running]

    assert [result.exit_code for result in results] == [0, 0]
    assert_polite(web.log, serial=False, pace_by=server)
    assert sorted(map(server, (hit.host for hit in web.log))) == [SERVER] * 4 + [c] * 2
    with closing(State(state)) as opened, opened.log() as log:
        audited = audit(log, time.time() + GOES_ON)
        addresses = {row.address for row in log.requests_by_time(audited.bounds)}
    assert addresses == {SERVER, web.address(c)}
    assert not audited.findings.found


def test_by_address_a_network_that_many_names_share_is_excepted(direct_web, crawl):
    answer = Answer((SERVER,))
    gone = replace(site("gone.example"), dns=UNKNOWN)
    web = direct_web(*(replace(site(host), dns=answer) for host in HOSTS), gone)
    shared = {"WALSH_SHARED_NETWORKS": "127.0.9.0/24, 2001:db8::/32"}
    result = crawl(web, sources=sources(*HOSTS, gone.host), settings=BY_ADDRESS | shared)
    judge(result)
    assert "the DNS has no address for gone.example" in result.stderr
    assert len(result.log) == 2 * len(HOSTS)
    assert violations(result.log, pace_by=lambda _: SERVER)


def test_by_address_a_crawl_behind_a_proxy_is_refused(loopback_web, crawl):
    web = loopback_web(site(HOSTS[0]))
    said = refusal(crawl(web, sources=sources(HOSTS[0]), settings=BY_ADDRESS))
    assert "WALSH_PACE_BY is 'address', but has to be 'host' or 'domain' with http_proxy" in said
