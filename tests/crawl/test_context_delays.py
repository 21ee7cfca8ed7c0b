"""The delays that a project asks Scrapy for (decisions 3 and 22).

In a declared crawl the longest one counts; in a project's own crawl Scrapy's precedence decides
about the delay of all hosts.
"""

import logging
from typing import ClassVar

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from tests.helpers.sites import IDENTITY
from walsh_scrapy.addon import Addon
from walsh_scrapy.crawl.context import ProjectDelays
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.pacing import PaceBy


class Links(Spider):
    name = "links"


class Slow(Links):
    download_delay = 3


class SlowBySetting(Links):
    custom_settings: ClassVar = {"DOWNLOAD_DELAY": 4, "DOWNLOAD_SLOTS": {"a.example": {"delay": 7}}}


def project_delays(given, spider=Links, pace_by=PaceBy.HOST):
    """The delays of a project with the add-on."""
    settings = Settings(IDENTITY | given)
    Addon(None).update_settings(settings)
    return ProjectDelays(settings, spider, pace_by.unit_of)


@pytest.mark.parametrize(
    ("given", "spider", "expected"),
    [
        ({}, Links, 0.0),
        ({"DOWNLOAD_DELAY": 2}, Links, 2.0),
        ({"DOWNLOAD_DELAY": "2.5"}, Links, 2.5),
        ({"DOWNLOAD_DELAY": 2}, Slow, 3.0),
        ({"DOWNLOAD_DELAY": 5}, Slow, 5.0),
        ({"DOWNLOAD_DELAY": 2}, SlowBySetting, 7.0),
        ({"DOWNLOAD_SLOTS": {"a.example": {"delay": 9}}}, Slow, 9.0),
        ({"DOWNLOAD_SLOTS": {"a.example": {"delay": 1}}}, Slow, 3.0),
        ({"DOWNLOAD_SLOTS": '{"a.example": {"delay": 9}}'}, Links, 9.0),
        ({"DOWNLOAD_SLOTS": {"A.Example.": {"delay": 9}}}, Links, 9.0),
        ({"DOWNLOAD_SLOTS": {"b.example": {"delay": 9}}}, Links, 0.0),
        ({"DOWNLOAD_SLOTS": {"a.example": {"concurrency": 2}}}, Links, 0.0),
        ({"AUTOTHROTTLE_ENABLED": True}, Links, 5.0),
        ({"AUTOTHROTTLE_ENABLED": "1", "AUTOTHROTTLE_START_DELAY": 8}, Links, 8.0),
        ({"AUTOTHROTTLE_ENABLED": "False", "AUTOTHROTTLE_START_DELAY": 8}, Links, 0.0),
        ({"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_TARGET_CONCURRENCY": 0}, Links, 0.0),
    ],
)
def test_the_longest_delay_counts(given, spider, expected):
    assert project_delays(given, spider).delay_of("a.example") == expected


@pytest.mark.parametrize(
    ("slot", "host"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("::1", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
    ],
)
def test_a_slot_may_be_named_after_any_host(slot, host, caplog):
    delays = project_delays({"DOWNLOAD_SLOTS": {slot: {"delay": 9}}})
    assert delays.delay_of(host) == 9.0
    assert caplog.records == []


def test_by_domain_the_longest_slot_of_its_hosts_counts():
    slots = {"www.example.com": {"delay": 3}, "feeds.example.com": {"delay": 6}}
    delays = project_delays({"DOWNLOAD_SLOTS": slots}, pace_by=PaceBy.DOMAIN)
    assert delays.delay_of("example.com") == 6.0


def test_slots_that_are_named_after_no_host_have_one_warning(caplog):
    names = ("slow", "group 1", "http://a.example/", "a.example:8080", "a.example")
    slots = {name: {"delay": 2} for name in names}
    delays = project_delays({"DOWNLOAD_SLOTS": slots | {"unused": {"concurrency": 1}}})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert all(repr(name) in message for name in names[:4])
    assert "unused" not in message
    assert delays.delay_of("slow") == 2.0, "a host may have that name"


def test_the_delay_follows_the_spider_while_it_runs():
    spider = Slow()
    delays = project_delays({}, spider)
    spider.download_delay = 6
    assert delays.delay_of("a.example") == 6.0


def test_autothrottle_has_a_start_delay_until_a_page_came():
    delays = project_delays({"AUTOTHROTTLE_ENABLED": True})
    assert delays.delay_of("a.example") == 5.0
    delays.record_page("a.example")
    assert delays.delay_of("a.example") == 0.0
    assert delays.delay_of("b.example") == 5.0, "each host has its own"


@pytest.mark.parametrize(("concurrency", "factor"), [(0.5, 2.0), (1, 1.0), (4, 1.0)])
def test_autothrottle_counts_the_last_answer(concurrency, factor):
    """A larger concurrency would mean several requests at once, which a host never gets."""
    given = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_TARGET_CONCURRENCY": concurrency}
    assert project_delays(given).latency_factor == factor


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"DOWNLOAD_DELAY": 1000}, 1000.0),
        ({"DOWNLOAD_SLOTS": {"a.example": {"delay": 1200}}}, 1200.0),
        ({"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 1300}, 1300.0),
        (
            {
                "AUTOTHROTTLE_ENABLED": True,
                "AUTOTHROTTLE_TARGET_CONCURRENCY": 0.05,
                "DOWNLOAD_TIMEOUT": 60,
            },
            1200.0,
        ),
    ],
)
def test_the_longest_delay_of_any_host_is_known(given, expected):
    assert project_delays(given).longest == expected


@pytest.mark.parametrize(
    "given",
    [
        {"DOWNLOAD_DELAY": "soon"},
        {"DOWNLOAD_SLOTS": {"a.example": {"delay": -1}}},
        {"DOWNLOAD_SLOTS": {"a.example": {"delay": None}}},
        {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": "x"},
    ],
)
def test_a_delay_that_is_no_number_is_refused(given):
    with pytest.raises((BadSetting, SystemExit)):
        project_delays(given)


def test_a_delay_that_an_add_on_after_ours_sets_counts_too():
    settings = Settings(IDENTITY | {"WALSH_SCOPE": "declared"})
    Addon(None).update_settings(settings)
    settings.set("DOWNLOAD_DELAY", 11, priority="addon")
    settings.set("DOWNLOAD_SLOTS", {"a.example": {"delay": 12}}, priority="cmdline")
    settings.set("AUTOTHROTTLE_ENABLED", True, priority="addon")
    delays = ProjectDelays(settings, Links, str)
    assert (delays.delay_of("a.example"), delays.delay_of("b.example")) == (12.0, 11.0)
    assert settings.getfloat("DOWNLOAD_DELAY") == 0.0
    assert settings.getdict("DOWNLOAD_SLOTS") == {}
    assert not settings.getbool("AUTOTHROTTLE_ENABLED")


def own_delays(given, spider=Links, **arguments):
    """The delays of a project's own crawl, in which the command line has ``arguments``."""
    settings = Settings(IDENTITY | given)
    settings.setdict(arguments, priority="cmdline")
    crawler = Crawler(spider, settings)
    Addon(crawler).update_settings(crawler.settings)
    return ProjectDelays(crawler.settings, spider, str, is_own=True)


@pytest.mark.parametrize(
    ("given", "spider", "arguments", "expected"),
    [
        ({}, Links, {}, 1.5),  # WALSH_MIN_INTERVAL, here
        ({"DOWNLOAD_DELAY": 0.25}, Links, {}, 0.25),
        ({"DOWNLOAD_DELAY": 0}, Links, {}, 0.0),
        ({"DOWNLOAD_DELAY": 5}, SlowBySetting, {}, 4.0),
        ({}, SlowBySetting, {"DOWNLOAD_DELAY": "0.5"}, 0.5),
        ({"DOWNLOAD_DELAY": 5}, Slow, {}, 3.0),
        ({}, Slow, {"DOWNLOAD_DELAY": "7"}, 3.0),
    ],
)
def test_scrapys_precedence_decides_about_an_own_delay(given, spider, arguments, expected):
    delays = own_delays(given, spider, **arguments)
    assert max(delays.minimum(1.5), delays.delay_of("b.example")) == expected
    assert delays.minimum(1.5) <= 1.5, "the state stores no more than that"


def test_a_longer_slot_wins_over_the_delay_of_an_own_crawl():
    slots = {"a.example": {"delay": 2}, "b.example": {"delay": 0.1}}
    delays = own_delays({"DOWNLOAD_DELAY": 0.5, "DOWNLOAD_SLOTS": slots})
    assert (delays.delay_of("a.example"), delays.delay_of("b.example")) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({}, True),
        ({"DOWNLOAD_DELAY": 0.25}, False),
        ({"DOWNLOAD_DELAY": 0.25, "AUTOTHROTTLE_ENABLED": True}, True),
    ],
)
def test_the_last_answer_counts_unless_an_own_crawl_sets_a_delay(given, counts):
    assert own_delays(given).latency_factor == counts
    assert project_delays(given).latency_factor == 1.0, "in a declared crawl it always does"


def test_without_the_add_on_an_own_crawl_chooses_no_delay():
    delays = ProjectDelays(Settings({"DOWNLOAD_DELAY": 0}), Links, str, is_own=True)
    assert delays.minimum(1.5) == 1.5
