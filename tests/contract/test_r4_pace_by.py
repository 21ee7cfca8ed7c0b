"""R4 by registrable domain: everything is the domain's (decision 5)."""

import json

from tests.helpers.sites import feed, judge, paths, site
from walsh_scrapy.testing.politeness import assert_polite, violations
from walsh_scrapy.testing.web import Reply

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


def test_by_domain_a_hold_is_that_of_the_domain(direct_web, crawl, on_state):
    """Everything is the domain's; one of 300 years, too."""
    held = Reply(status=404, headers={"Retry-After": "10000000000"})
    web = direct_web(*(site(host, feed=held) for host in HOSTS[:2]), site(HOSTS[2]))
    by_domain = {"WALSH_PACE_BY": "domain"}
    asked = paths(crawl(web, sources=sources(*HOSTS), settings=by_domain).log)
    assert [f"{host}/feed" in asked for host in HOSTS[:2]].count(True) == 1
    assert f"{HOSTS[2]}/feed" in asked
    rows = json.loads(on_state("hosts", "--json", settings=by_domain).stdout)
    assert {row["host"] for row in rows if row["hold_until"]} == {"site-one.co.uk"}
    release = ("hosts", "release", HOSTS[1], "--because", "a mistake")
    released = on_state(*release, settings=by_domain)
    assert released.stdout.startswith("site-one.co.uk may be requested again; ")


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
