"""At most one connection is open, whatever is requested; names, families, sessions (26, 27)."""

from dataclasses import replace

from tests.helpers.sites import LIST_URL, blocklist, site
from walsh_scrapy.testing.names import DEAD, OWN, UNKNOWN, Answer
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Site, redirect


def hosts_of(connections):
    return {connection.host for connection in connections}


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
        *(f"https://{each.name}/feed" for each in secure),
        *(f"http://{each.name}/feed" for each in plain),
        "http://mover.example/feed",
        "http://blocked.example/feed",
    ]
    web.add(replace(secure[0], pages={"/feed": secure[0].pages["/feed"], "/other": "no feed"}))
    result = crawl(web, sources=sources, settings={"WALSH_BLOCKLIST_URL": LIST_URL})
    assert result.stats["walsh/sources/fetched"] == 12
    assert web.most_open_connections == 1
    secured = [each for each in web.connections if each.scheme == "https"]
    for each in secure:
        shaken = [it.handshake for it in secured if it.host == each.name]
        assert shaken == ["full", *["resumed"] * (len(shaken) - 1)]
        assert len(shaken) > 1
    assert "blocked.example" not in {lookup.name for lookup in web.lookups}
    assert "blocked.example" not in hosts_of(web.connections)
    assert_polite(result.log, connections=web.connections, blocked=["blocked.example"])


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
        sum(1 for other in web.lookups if other.started <= each.started < other.ended)
        for each in web.lookups
    ]
    assert max(overlapping) > 4
