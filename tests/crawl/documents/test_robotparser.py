"""The parser that listeners of ``robots_parsed`` get."""

import pytest
from scrapy.robotstxt import RobotParser
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.documents.robotparser import RobotsParser

ROBOTS = b"""
User-agent: Example-Bot
Crawl-delay: 3
Disallow: /ours

User-agent: Googlebot
Disallow: /theirs

User-agent: *
Disallow: /
"""
URL = "http://a.example"


@pytest.fixture(scope="module")
def parser():
    return RobotsParser(ROBOTS, "Example-Bot")


def test_the_parser_can_be_used_by_scrapy(parser):
    assert isinstance(parser, RobotParser)
    settings = {"WALSH_USER_AGENT": "Example-Bot/1.0", "WALSH_UA_TOKEN": "Example-Bot"}
    other = RobotsParser.from_crawler(get_crawler(settings_dict=settings), ROBOTS)
    assert not other.allowed(f"{URL}/ours", "Example-Bot")


@pytest.mark.parametrize(
    ("user_agent", "allowed"),
    [
        ("Example-Bot", ["/theirs", "/x"]),
        ("example-bot", ["/theirs", "/x"]),
        ("Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)", ["/theirs", "/x"]),
        (b"Example-Bot", ["/theirs", "/x"]),
        ("Googlebot", ["/ours", "/x"]),
        (
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            ["/ours", "/x"],
        ),
        (b"Googlebot/2.1", ["/ours", "/x"]),
        ("Other/1.0", []),
        ("", []),
        (b"\xff", []),
    ],
)
def test_each_user_agent_has_its_own_group(parser, user_agent, allowed):
    paths = ["/ours", "/theirs", "/x"]
    assert [path for path in paths if parser.allowed(f"{URL}{path}", user_agent)] == allowed


def test_a_url_may_be_bytes(parser):
    assert not parser.allowed(b"http://a.example/ours", b"Example-Bot")


def test_the_crawl_delay_is_that_of_the_group(parser):
    assert parser.crawl_delay("Example-Bot") == 3.0
    assert parser.crawl_delay("Googlebot") is None


def test_an_empty_file_allows_everything():
    assert RobotsParser(b"", "Example-Bot").allowed(f"{URL}/x", "Any")
