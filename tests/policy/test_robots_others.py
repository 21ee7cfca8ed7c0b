"""R2, decision 13: the example file of the extended standard 2.0, as its comments say."""

from datetime import UTC, datetime

import pytest

from walsh_scrapy.policy.robots import RobotsTxt

# For the fictitious www.frommitz.biz.
FROMMITZ = RobotsTxt.parse(b"""\
User-agent: fredsbot
User-agent: pandabot
User-agent: chives
Disallow: /images\t\t# images
Disallow: /order.shtml
Disallow: /order.cgi
Disallow: /blackhole

User-agent: popularsite
Disallow: /images
Disallow: /order.shtml
Disallow: /order.cgi
Disallow: /blackhole/info98.shtml
Disallow: /blackhole/info99.html
Disallow: /blackhole/info99.gif
Disallow: /blackhole/info8.html
Disallow: /blackhole/info/page2.shtml

User-agent: alfred
User-agent: newchives
User-agent: oscarbot
Robot-version: 2.0.0 2.0\t# both spellings, as in the document
Allow: *index.html
Allow: /images/index.html
Allow: /blackhole/index.html
Allow: /blackhole/info*
Disallow: *
Disallow: *.shtml
Disallow: *.cgi
Disallow: *.gif
Disallow: *.jpg
Disallow: /images*
Disallow: /blackhole/info99*
Disallow: /blackhole/info8.html

User-agent: hackerbot
Robot-version: 2.0
Request-rate: 1/30m
Allow: *index.html
Disallow: *

User-agent: suckemdry
Robot-version: 2.0
Allow: *.html
Disallow: *
Visit-time: 0600-0845

User-agent: vacuumweb
User-agent: spanwebbot
User-agent: spiderbot
Robot-version: 2.0
Request-rate: 1/10m 1300-1659
Request-rate: 1/20m 1700-0459
Request-rate: 5/1m  0500-1259
Comment: you ask all the time
Comment: so here is a limit
Allow: *.html
Disallow: *

User-agent: *
Disallow: /
""")

PAGES = ("/index.html", "/products.html", "/overview.html", "/thankyou.html")
OTHERS = ("/order.shtml", "/order.cgi", "/images/logo.gif")


def fetchable(agent, *paths):
    rules = FROMMITZ.rules_for(agent)
    return {path for path in paths if rules.verdict(f"http://www.frommitz.biz{path}").allowed}


@pytest.mark.parametrize("agent", ["fredsbot", "pandabot", "chives"])
def test_frommitz_first_group_allows_four_pages(agent):
    kept_out = ("/blackhole/index.html", "/images/index.html", *OTHERS)
    assert fetchable(agent, *PAGES, *kept_out) == set(PAGES)


def test_frommitz_second_group_denies_only_what_it_lists():
    open_pages = (*PAGES, "/blackhole/index.html", "/blackhole/info7.html")
    kept_out = ("/blackhole/info98.shtml", "/blackhole/info99.gif", "/blackhole/info/page2.shtml")
    assert fetchable("popularsite", *open_pages, *kept_out, *OTHERS) == set(open_pages)


@pytest.mark.parametrize("agent", ["alfred", "newchives", "oscarbot"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/index.html", True),
        ("/images/index.html", True),
        ("/blackhole/index.html", True),
        ("/blackhole/info7.html", True),
        ("/blackhole/info/page1.html", True),
        ("/products.html", False),
        ("/images/logo.gif", False),
        ("/images/", False),
        ("/order.shtml", False),
        ("/order.cgi", False),
        ("/blackhole/info98.shtml", False),
        ("/blackhole/info/page2.shtml", False),
        ("/blackhole/info/photo.jpg", False),
        ("/blackhole/info99.html", False),
        ("/blackhole/info99.gif", False),
        ("/blackhole/info8.html", False),
    ],
)
def test_frommitz_third_group_as_its_comments_say(agent, path, expected):
    assert fetchable(agent, path) == ({path} if expected else set())


def test_frommitz_verdicts_name_the_rule_of_either_reading():
    verdict = FROMMITZ.rules_for("alfred").verdict
    assert verdict("/blackhole/info99.html").rule == "Disallow: /blackhole/info99*"
    assert verdict("/blackhole/info98.shtml").rule == "Disallow: *.shtml"
    assert verdict("/index.html").rule == "Allow: *index.html"


def test_frommitz_hackerbot_gets_one_index_page_in_30_minutes():
    assert fetchable("hackerbot", "/index.html", "/a/index.html", *PAGES[1:], *OTHERS) == {
        "/index.html",
        "/a/index.html",
    }
    assert FROMMITZ.rules_for("hackerbot").interval(datetime(2026, 1, 1, tzinfo=UTC)) == 1800


def test_frommitz_suckemdry_gets_html_from_0600_to_0845():
    assert fetchable("suckemdry", *PAGES, *OTHERS) == set(PAGES)
    rules = FROMMITZ.rules_for("suckemdry")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    assert rules.opens(day) == day.replace(hour=6)
    assert rules.opens(day.replace(hour=8, minute=45)) == day.replace(hour=8, minute=45)
    assert rules.opens(day.replace(hour=8, minute=46)) == day.replace(day=2, hour=6)


@pytest.mark.parametrize("agent", ["vacuumweb", "spanwebbot", "spiderbot"])
def test_frommitz_vacuumweb_has_a_rate_for_each_time_of_day(agent):
    assert fetchable(agent, *PAGES, *OTHERS) == set(PAGES)
    rules = FROMMITZ.rules_for(agent)
    rates = {hour: rules.interval(datetime(2026, 1, 1, hour, 59, tzinfo=UTC)) for hour in range(24)}
    assert {rates[hour] for hour in range(13, 17)} == {600}
    assert {rates[hour] for hour in (*range(17, 24), *range(5))} == {1200}
    assert {rates[hour] for hour in range(5, 13)} == {12}
    assert rules.comments == ("you ask all the time", "so here is a limit")


def test_frommitz_denies_all_others():
    assert not fetchable("Walsh-Research", *PAGES, *OTHERS)
