"""R4 and decision 13: Crawl-delay, and the extended standard 2.0 where it is stricter."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.helpers import cases
from walsh_scrapy.policy.robots import RobotsTxt


def rules_of(*lines):
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines]).encode()).rules_for("any")


def at(hour, minute=0, second=0, zone=UTC):
    return datetime(2026, 5, 23, hour, minute, second, tzinfo=zone)


@cases("value", "seconds")
def test_a_crawl_delay_is_an_ascii_decimal(value, seconds):
    rules = rules_of(f"Crawl-delay: {value}")
    assert (rules.crawl_delay, rules.warnings) == (seconds, ())


@cases("value", more=["9" * 400])
def test_any_other_crawl_delay_is_ignored_with_a_warning(value):
    rules = rules_of("Crawl-delay: 3", f"Crawl-delay: {value}")
    assert rules.crawl_delay == 3
    ((line, sentence),) = rules.warnings
    assert line == 3
    assert "ignored" in sentence


@pytest.mark.parametrize("values", [(1, 10), (10, 1)])
def test_largest_of_several_crawl_delays_is_used(values):
    assert rules_of(*(f"Crawl-delay: {value}" for value in values)).crawl_delay == 10


@pytest.mark.parametrize("key", ["crawl-delay:", "Crawl delay:", "CRAWLDELAY :", "Crawl-delay"])
def test_misspelled_crawl_delays_are_read(key):
    assert rules_of(f"{key} 7").crawl_delay == 7


@pytest.mark.parametrize(
    "value", ["0600-0845", "06:00-08:45", "0600 0845", "6:00 - 8:45", "600 845", "06:00 08:45 UTC"]
)
@pytest.mark.parametrize(
    ("now", "opening"),
    [
        (at(5, 59, 59), at(6)),
        (at(6), at(6)),
        (at(7, 12, 3), at(7, 12, 3)),
        (at(8, 45, 59), at(8, 45, 59)),
        (at(8, 46), at(6) + timedelta(days=1)),
        (at(23, 59), at(6) + timedelta(days=1)),
    ],
)
def test_a_visit_time_includes_its_first_and_last_minute(value, now, opening):
    assert rules_of(f"Visit-time: {value}").opens(now) == opening


MIDNIGHT, TWO = ["2200-0300"], ["1200-1259", "0100-0159"]


@pytest.mark.parametrize(
    ("windows", "now", "opening"),
    [
        (MIDNIGHT, at(22), at(22)),
        (MIDNIGHT, at(0), at(0)),
        (MIDNIGHT, at(3, 0, 30), at(3, 0, 30)),
        (MIDNIGHT, at(3, 1), at(22)),
        (MIDNIGHT, at(21, 59), at(22)),
        (TWO, at(1), at(1)),
        (TWO, at(3), at(12)),
        (TWO, at(12, 30), at(12, 30)),
        (TWO, at(14), at(1) + timedelta(days=1)),
        (["0600-2400"], at(23, 59, 59), at(23, 59, 59)),
        (["0600-24:00"], at(0), at(6)),
        ([], at(4, 5, 6), at(4, 5, 6)),
    ],
)
def test_visit_times_are_alternatives_and_may_cross_midnight(windows, now, opening):
    assert rules_of(*(f"Visit-time: {window}" for window in windows)).opens(now) == opening


def test_visit_times_are_utc_in_every_time_zone():
    zone = timezone(timedelta(hours=-5))
    opening = rules_of("Visit-time: 0600-0845").opens(at(0, 30, 5, zone))
    assert (opening, opening.tzinfo) == (at(1, zone=zone), zone)


@cases("value")
def test_a_malformed_visit_time_is_ignored_with_a_warning(value):
    rules = rules_of(f"Visit-time: {value}")
    assert rules.opens(at(3)) == at(3)
    assert [line for line, _ in rules.warnings] == [2]


@pytest.mark.parametrize(
    ("windows", "now", "began"),
    [
        (["0600-0845"], (7, 30), (6, 0)),
        (["0600-0845"], (6, 0), (6, 0)),
        (["0600-0845"], (8, 45), (6, 0)),
        (["0600-0845"], (8, 46), None),
        (["0600-0845", "0846-1000"], (9, 0), (6, 0)),
        (["0600-0845", "0900-1000"], (9, 30), (9, 0)),
        (["2200-0459"], (23, 0), (22, 0)),
        (["0000-2359"], (9, 0), None),
        ([], (9, 0), None),
    ],
)
def test_a_window_began_before_the_time_that_it_allows(windows, now, began):
    rules = rules_of(*(f"Visit-time: {window}" for window in windows))
    assert rules.opened(at(*now)) == (at(*began) if began else None)


def test_a_window_that_crosses_midnight_began_on_the_day_before():
    began = rules_of("Visit-time: 2200-0459").opened(at(3))
    assert began == at(22) - timedelta(days=1)


@cases("value", "seconds")
def test_a_request_rate_is_documents_per_time(value, seconds):
    rules = rules_of(f"Request-rate: {value}")
    assert rules.interval(at(3)) == pytest.approx(seconds)
    assert rules.crawl_delay is None


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([], None),
        (["Request-rate: 1/60 0600-1800"], None),
        (["Request-rate: 1/60 0600-1800", "Request-rate: 1/3", "Request-rate: 1/5"], 5.0),
    ],
)
def test_the_rate_of_all_day_has_no_window(lines, seconds):
    assert rules_of(*lines).all_day_interval == seconds


@pytest.mark.parametrize(
    ("lines", "has_hours"),
    [([], False), (["Visit-time: 0000-2359"], False), (["Visit-time: 0600-0845"], True)],
)
def test_a_visit_time_may_close_a_part_of_the_day(lines, has_hours):
    assert rules_of(*lines).has_visit_time == has_hours


@cases("value")
def test_a_malformed_request_rate_is_ignored_with_a_warning(value):
    rules = rules_of(f"Request-rate: {value}")
    assert rules.interval(at(13, 30)) is None
    assert [line for line, _ in rules.warnings] == [2]


@pytest.mark.parametrize("value", ["1/10m 1300-1659", "1/10m 1300 1659", "1/10m  13:00-16:59"])
def test_a_request_rate_may_have_a_window(value):
    rules = rules_of(f"Request-rate: {value}")
    seconds = [rules.interval(now) for now in (at(12, 59), at(13), at(16, 59, 59), at(17))]
    assert seconds == [None, 600, 600, None]


def test_slowest_of_the_active_rates_is_used():
    rules = rules_of("Request-rate: 1/10", "Request-rate: 1/20", "Request-rate: 1/5 0000-0559")
    assert (rules.interval(at(3)), rules.interval(at(12))) == (20, 20)
    rules = rules_of("Request-rate: 1/10", "Request-rate: 1/60 0000-0559")
    assert (rules.interval(at(3)), rules.interval(at(12))) == (60, 10)


def test_comments_are_kept_in_order_without_control_characters():
    rules = rules_of("Comment: mind the gap # or not", "comment: \x1b[31mgrüß dich\x07", "Comment:")
    assert rules.comments == ("mind the gap", "[31mgrüß dich", "")


def test_first_comments_are_kept_and_the_rest_counted():
    rules = rules_of(
        "Comment: 0 blah" + "!" * 9999, *(f"Comment: {n} blah" for n in range(1, 8000))
    )
    *shown, rest = rules.comments
    assert [comment[:6] for comment in shown] == [f"{number} blah" for number in range(5)]
    assert max(map(len, shown)) == 200
    assert rest == "… and 7,995 more"


def test_first_warnings_are_kept_and_the_rest_counted():
    rules = rules_of(f"Crawl-delay: soon{'!' * 9999}", *["Crawl-delay: soon"] * 7999)
    lines, sentences = zip(*rules.warnings, strict=True)
    assert lines == (2, 3, 4, 5, 6)
    assert max(map(len, sentences)) < 300
    assert sentences[-1].endswith(" … and 7,995 more")


def test_a_long_rule_is_cut_where_it_is_shown_and_nowhere_else():
    verdict = rules_of(f"Disallow: /{'a' * 5000}").verdict(f"/{'a' * 5001}")
    assert not verdict.allowed
    assert len(verdict.rule) == 200
    assert rules_of(f"Disallow: /{'a' * 5000}").verdict(f"/{'a' * 4999}").allowed


def allowed(url, *lines):
    return rules_of("Robot-version: 2.0", *lines).verdict(url).allowed


@cases("lines", "url", "expected")
def test_version_2_is_also_read_in_order_with_shell_patterns(lines, url, expected):
    assert allowed(url, *lines) is expected


@pytest.mark.parametrize("version", ["2.0", "2", "2.1", "2.0.0", "2.0.0 2.0"])
def test_every_form_of_version_2(version):
    lines = ["Disallow: *", "Allow: *.html"]
    assert not rules_of(f"Robot-version: {version}", *lines).verdict("/a.html").allowed
    assert not rules_of(*lines, f"Robot-version: {version}").verdict("/a.html").allowed


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "", "20", "3.0", "x"])
def test_any_other_version_is_read_by_the_rfc_alone(version):
    lines = [f"Robot-version: {version}", "Disallow: *", "Allow: *.html"]
    assert rules_of(*lines).verdict("/a.html").allowed


def test_only_groups_of_version_2_are_read_in_order():
    text = (
        "User-agent: us\nDisallow: /a*\nAllow: /a/b\n"
        "User-agent: us\nRobot-version: 2.0\nDisallow: /c*\nAllow: /c/d\n"
    )
    rules = RobotsTxt.parse(text.encode()).rules_for("us")
    assert rules.verdict("/a/b").allowed
    assert not rules.verdict("/c/d").allowed
    assert (rules.verdict("/c/d").rule, rules.verdict("/c/d").line) == ("Disallow: /c*", 6)


def test_ordered_rules_that_cost_too_much_deny_and_are_reported():
    many = rules_of("Robot-version: 2.0", *(f"Allow: /{number}" for number in range(2_001)))
    assert many.verdict("/x").undecided
    long = rules_of("Robot-version: 2.0", "Allow: /" + "*a?" * 5_000, "Disallow: /b")
    assert long.verdict("/" + "a" * 2_000).undecided
    assert not long.verdict("/" + "a" * 2_000).allowed


def test_a_comment_is_shown_without_addresses():
    file = RobotsTxt.parse(
        b"User-agent: *\nDisallow: /x\nComment: ask jo@a.example, or jo%40a.example\n"
    )
    assert file.rules_for("Walsh-Research").comments == ("ask …, or …",)


# R2, decision 13: the example file of the extended standard 2.0, as its comments say.

# For the fictitious www.frommitz.biz.
FROMMITZ = RobotsTxt.parse(Path(__file__).with_name("frommitz.txt").read_bytes())

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
@cases("path", "expected")
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


def test_frommitz_denies_all_other_bots():
    assert not fetchable("Walsh-Research", *PAGES, *OTHERS)
