"""`scrapy why` on odd days: each sentence of each letter is true by the logs of the servers.

A hold that the operator ended, hosts that opt out, killed runs, redirects across hosts, a removed
source, a domain that is paced as one.
"""

import pytest

from tests.helpers.letters import BEGIN, HOUR, SHUT, World
from tests.helpers.sites import IDENTITY, feed, site
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect

RULES = "User-agent: *\nAllow: /feed\nDisallow: /private\n"


def refused(seconds):
    return Reply(status=503, headers={"Retry-After": str(int(seconds))})


def url(name):
    return f"http://{name}.example/feed"


PRIVATE = "http://deny.example/private"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A sentence is one line."""
    monkeypatch.setattr("walsh_scrapy.tools.why.letter.WIDTH", 10_000)


def web(*, busy="", shut=RULES, ill=RULES):
    return [
        Site("ill.example", ill, {"/feed": feed()}),
        Site("forbid.example", Reply(status=403), {"/feed": feed()}),
        Site("busy.example", "", {"/feed": busy or feed()}),
        Site("led.example", redirect("http://rules.example/for-led.txt"), {"/feed": feed()}),
        Site("rules.example", SHUT, {"/for-led.txt": "User-agent: *\nDisallow:\n"}),
        site("out.example"),
        Site("deny.example", RULES, {"/private": feed()}),
        Site("old.example", "", {"/feed": redirect(url("new"), 302)}),
        Site("new.example", RULES, {"/feed": feed()}),
        Site("gone.example", "", {"/feed": Reply(status=410)}),
        Site("late.example", "", {"/feed": redirect(url("led"), 302)}),
        Site("later.example", "", {"/feed": redirect(url("gone"), 302)}),
        Site("shut.example", shut, {"/feed": feed(), "/news": feed()}),
    ]


def test_each_sentence_of_a_letter_is_true_on_odd_days(simulated, tmp_path):
    """Two days, and the run that came afterwards."""
    world, told = World(simulated, tmp_path, WALSH_ROBOTS_UNREACHABLE="phased"), []
    hosts = [*(each.host for each in web()), "killer.example", "operator.example"]
    first = [
        *map(url, ("ill", "forbid", "busy", "led", "out", "old", "new", "gone", "shut")),
        PRIVATE,
    ]

    world.run(0.0, first, *web(busy=refused(7200)))
    told += world.letters(30.0, hosts)
    (hold,) = (each for each in world.seen if each.hit.status == 503)
    world.release("busy.example", hold.end + 38.0)
    world.run(600.0, first, *web())
    told += world.letters(HOUR, hosts)

    left = [each for each in first if each != url("new")]
    world.run(12 * HOUR, [*left, url("late"), url("later")], *web(), listed=("out.example",))
    told += world.letters(13 * HOUR, hosts)
    world.run(15 * HOUR, [url("killer")], listed=("out.example",), dies=url("killer"))
    died = world.seen[-1].hit.wall - BEGIN
    told += world.letters(died + 10.0, hosts)
    world.run(16 * HOUR, [*left, url("killer")], *web(), site("killer.example", ""),
              listed=("out.example",))  # fmt: skip
    told += world.letters(17 * HOUR, hosts)

    world.slow("led.example", 18 * HOUR, 60.0)
    told += world.letters(19 * HOUR, hosts)
    news = "http://shut.example/news"
    world.run(DAY + 2 * HOUR, [news], *web(shut=SHUT), listed=("out.example",))
    world.run(
        DAY + 3 * HOUR,
        [*left, url("late"), news],
        *web(shut=SHUT, ill=Reply(status=500)),
        listed=("out.example",),
    )
    told += world.letters(DAY + 4 * HOUR, hosts)
    told += world.letters(DAY + 4 * HOUR, hosts, day=int(BEGIN // DAY))
    world.slow("led.example", 2 * DAY, 0.0)
    world.run(2 * DAY + 4 * HOUR, [*left, url("late"), news], *web(shut=SHUT))
    told += world.letters(2 * DAY + 5 * HOUR, hosts)

    for each in told:
        each.judge()
    text = "\n".join(each.text for each in told)
    for said in (
        "then on hold for 2 h, which we ended by hand after 38 s",
        "1 s had to pass, as we had ended a hold by hand at 2026-01-01 00:00:40 UTC",
        "it is read as the robots.txt of the host that redirected there; a redirect of another",
        "on our blocklist, so nothing is requested while it is listed",
        "no longer a source",
        "as a request is out, or its crawl was killed",
    ):
        assert said in text


def test_the_list_s_own_host_on_odd_days(simulated, tmp_path):
    """It asks for three days, and then lists itself."""
    world, told, host = World(simulated, tmp_path), [], "operator.example"
    world.run(0.0, [url("busy")], *web())
    world.run(7 * HOUR, [url("led")], *web(), list_page=refused(3 * DAY))
    told.append(world.letter(host, 8 * HOUR))
    world.run(33 * HOUR, [url("busy")], *web(), listed=(host,))
    told.append(world.letter(host, 34 * HOUR))
    world.run(48 * HOUR, [url("busy")], *web(), listed=(host,))
    told.append(world.letter(host, 49 * HOUR))
    for each in told:
        each.judge()


def test_a_domain_that_is_paced_as_one_on_odd_days(simulated, tmp_path):
    """One of its hosts refuses; another one has opted out, in a project that follows links."""
    world = World(simulated, tmp_path, WALSH_PACE_BY="domain", **IDENTITY)
    hosts = ["one.pair.com", "two.pair.com", "shut.pair.com"]
    sites = [site("one.pair.com"), Site("two.pair.com", "", {"/feed": [refused(7200), feed()]})]
    sites.append(Site("shut.pair.com", SHUT, {"/feed": feed()}))
    sources = [f"http://{host}/feed" for host in hosts]
    told = []
    world.run(0.0, sources, *sites)
    told += world.letters(60.0, hosts)
    told += world.letters(HOUR, hosts, knows_sources=False)
    world.run(3 * HOUR, sources, *sites)
    told += world.letters(3.5 * HOUR, hosts, knows_sources=False)
    told.append(world.letter("shut.pair.com", 9 * HOUR, knows_sources=False))
    assert "no hold and no delay keeps us from it; each gate" in told[-1].text
    world.run(10 * HOUR, sources, *sites)
    for each in told:
        each.judge()
