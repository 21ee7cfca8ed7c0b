"""Whose crawl it is, and under which name (decisions 24 and 47)."""

from types import SimpleNamespace

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from tests.helpers.sites import AGENT, IDENTITY
from walsh_scrapy import identity
from walsh_scrapy.addon import Addon, set_kind
from walsh_scrapy.crawl.startup import Kind, kind_of, start_problems
from walsh_scrapy.options import WALSH_RESEARCH, BadSetting, Options, identity_of
from walsh_scrapy.spider import DeclaringSpider

OTHER = "OtherBot/2.1 (+https://other.example/bot)"
WALSH = {"WALSH_USER_AGENT": identity.USER_AGENT, "WALSH_UA_TOKEN": identity.UA_TOKEN}


class Links(Spider):
    name = "links"


class Named(Links):
    user_agent = OTHER


class Feeds(DeclaringSpider):
    name = "feeds"


# The name of a bot.


@pytest.mark.parametrize(
    ("given", "spidercls", "expected"),
    [
        ({}, None, None),
        ({}, Links, None),
        ({"USER_AGENT": ""}, Links, None),
        ({"WALSH_USER_AGENT": "", "WALSH_UA_TOKEN": ""}, Links, None),
        (IDENTITY, None, (AGENT, "Example-Bot")),
        (WALSH, None, WALSH_RESEARCH),
        ({"USER_AGENT": identity.USER_AGENT}, None, WALSH_RESEARCH),
        # One of the two: the other is found.
        ({"WALSH_USER_AGENT": AGENT}, None, (AGENT, "Example-Bot")),
        ({"WALSH_UA_TOKEN": "OtherBot", "USER_AGENT": OTHER}, None, (OTHER, "OtherBot")),
        ({"WALSH_UA_TOKEN": "Other", "USER_AGENT": OTHER}, None, (OTHER, "Other")),
        ({"WALSH_UA_TOKEN": "OtherBot"}, Named, (OTHER, "OtherBot")),
        # Scrapy's own precedence.
        ({"USER_AGENT": OTHER}, None, (OTHER, "OtherBot")),
        ({"USER_AGENT": AGENT}, Named, (OTHER, "OtherBot")),
        ({"USER_AGENT": AGENT}, Links, (AGENT, "Example-Bot")),
        ({"DEFAULT_REQUEST_HEADERS": {"User-Agent": AGENT}}, Named, (AGENT, "Example-Bot")),
        ({"DEFAULT_REQUEST_HEADERS": {"user-agent": AGENT}}, None, (AGENT, "Example-Bot")),
        ({"DEFAULT_REQUEST_HEADERS": {"User-Agent": None}}, Named, (OTHER, "OtherBot")),
        (IDENTITY | {"USER_AGENT": OTHER}, Named, (AGENT, "Example-Bot")),
    ],
)
def test_the_name_of_a_bot_comes_from_its_settings(given, spidercls, expected):
    assert identity_of(Settings(given), spidercls) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"USER_AGENT": "Mozilla/5.0 Chrome/99"},
            ["USER_AGENT is 'Mozilla", "the name of your bot"],
        ),
        ({"USER_AGENT": "curl/8.5"}, ["USER_AGENT is 'curl"]),
        ({"USER_AGENT": "x (+http://www.yourdomain.com)"}, ["USER_AGENT is", "yourdomain.com"]),
        ({"DEFAULT_REQUEST_HEADERS": {"User-Agent": "curl/8"}}, ["DEFAULT_REQUEST_HEADERS['User-"]),
        ({"WALSH_USER_AGENT": "Java/21"}, ["WALSH_USER_AGENT is 'Java"]),
        (
            {"WALSH_UA_TOKEN": "Bot9", "USER_AGENT": OTHER},
            ["WALSH_UA_TOKEN is 'Bot9'", "'9' is not"],
        ),
        ({"WALSH_UA_TOKEN": "Mine", "USER_AGENT": OTHER}, ["USER_AGENT is 'Other", "token 'Mine'"]),
        ({"WALSH_UA_TOKEN": "Mine"}, ["USER_AGENT =", "Mine/1.0"]),
        ({"USER_AGENT": "Bot/1.0 \u00f6"}, ["USER_AGENT is", "ASCII"]),
        (WALSH | {"WALSH_USER_AGENT": OTHER}, [identity.USER_AGENT]),
        ({"USER_AGENT": identity.USER_AGENT + " x"}, [identity.USER_AGENT]),
    ],
)
def test_a_wrong_name_is_refused_with_the_setting_that_has_it(given, words):
    with pytest.raises(BadSetting) as refused:
        identity_of(Settings(given))
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_project_without_a_name_reads_that_line_alone():
    with pytest.raises(BadSetting) as refused:
        set_kind(Settings({"BOT_NAME": "shop_7"}), Links)
    assert 'USER_AGENT = "shop_/1.0 (+https://your.page.example/)"' in str(refused.value)
    assert "walsh-research" not in str(refused.value).lower()


def test_options_without_a_name_are_those_of_no_bot():
    options = Options.from_settings(Settings())
    assert (options.user_agent, options.ua_token) == ("", "")
    assert (options.blocklist_url, options.robots_unreachable) == ("", "phased")
    assert not options.is_walsh_research


def test_the_defaults_of_walsh_research_come_with_its_name():
    options = Options.from_settings(Settings(WALSH))
    assert options.is_walsh_research
    assert options.blocklist_url == identity.BLOCKLIST_URL
    assert options.blocklist_schema_url == identity.BLOCKLIST_SCHEMA_URL
    assert options.robots_unreachable == "allow"


@pytest.mark.parametrize(
    ("given", "spidercls", "agent", "warns"),
    [
        ({"USER_AGENT": AGENT}, Named, OTHER, False),
        (
            {"USER_AGENT": AGENT, "DEFAULT_REQUEST_HEADERS": {"User-Agent": OTHER}},
            Links,
            OTHER,
            False,
        ),
        (IDENTITY | {"USER_AGENT": OTHER}, Links, AGENT, True),
    ],
)
def test_another_user_agent_is_named_if_it_would_be_sent(given, spidercls, agent, warns, caplog):
    settings = Settings(given)
    Addon(SimpleNamespace(spidercls=spidercls)).update_settings(settings)
    assert settings["USER_AGENT"] == agent
    assert ("USER_AGENT = " in caplog.text) is warns


# The kind of a crawl.


@pytest.mark.parametrize("given", [{}, IDENTITY, {"USER_AGENT": OTHER}])
def test_the_spider_decides_about_the_kind(given):
    assert kind_of(Feeds, Settings(given)) is Kind.DECLARED
    assert kind_of(Links, Settings(given)) is Kind.OWN


def test_under_walsh_research_only_what_is_declared_is_crawled():
    assert kind_of(Feeds, Settings(WALSH)) is Kind.DECLARED
    with pytest.raises(BadSetting, match="'links' has no declared sources"):
        kind_of(Links, Settings(WALSH))
    # A spider may name itself otherwise than its project.
    assert kind_of(Named, Settings({"USER_AGENT": identity.USER_AGENT})) is Kind.OWN


@pytest.mark.parametrize(
    ("spidercls", "given", "scope", "serial"),
    [
        (Feeds, {}, "declared", True),
        (Feeds, {"WALSH_SCOPE": "any", "WALSH_SERIAL": False}, "any", False),
        (Links, {}, "any", False),
        (Links, {"WALSH_SERIAL": True}, "any", True),
    ],
)
def test_scope_and_serial_follow_from_the_kind(spidercls, given, scope, serial):
    settings = Settings(IDENTITY | given)
    set_kind(settings, spidercls)
    options = Options.from_settings(settings)
    assert (options.scope, options.serial) == (scope, serial)


def test_declared_scope_without_declared_sources_is_refused():
    with pytest.raises(BadSetting, match="WALSH_SCOPE is 'declared', but must be 'any'"):
        set_kind(Settings(IDENTITY | {"WALSH_SCOPE": "declared"}), Links)


@pytest.mark.parametrize("given", [IDENTITY, WALSH])
def test_a_declared_crawl_has_a_second_at_least_between_requests(given):
    settings = Settings(given | {"ADDONS": {"walsh_scrapy.Addon": 500}, "WALSH_MIN_INTERVAL": 0.25})
    Addon(SimpleNamespace(spidercls=Feeds)).update_settings(settings)
    (problem,) = start_problems(settings, Feeds)
    assert "WALSH_MIN_INTERVAL is 0.25, but must be at least 1" in str(problem)


def test_an_own_crawl_may_have_less_between_requests():
    given = {"ADDONS": {"walsh_scrapy.Addon": 500}, "WALSH_MIN_INTERVAL": 0.25}
    settings = Settings(IDENTITY | given)
    Addon(SimpleNamespace(spidercls=Links)).update_settings(settings)
    assert list(start_problems(settings, Links)) == []
