"""The bot that a User-Agent names: well-known ones, browsers, libraries, and any text."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.useragents import NoBotName, newest_of_others, token_in

BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0"
BOTS = {
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": "Googlebot",
    f"{BROWSER} Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": (
        "Googlebot"
    ),
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; "
    "+http://www.bing.com/bingbot.htm) Chrome/130.0.0.0 Safari/537.36": "bingbot",
    "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)": "YandexBot",
    "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)": (
        "Baiduspider"
    ),
    "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)": "DuckDuckBot",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)": "Applebot",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)": "AhrefsBot",
    "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)": "SemrushBot",
    "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)": "MJ",
    "Mozilla/5.0 (compatible; DotBot/1.2; +https://opensiteexplorer.org/dotbot; help@moz.com)": (
        "DotBot"
    ),
    "Mozilla/5.0 (compatible;PetalBot;+https://webmaster.petalsearch.com/site/petalbot)": (
        "PetalBot"
    ),
    "CCBot/2.0 (https://commoncrawl.org/faq/)": "CCBot",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; "
    "+https://openai.com/gptbot)": "GPTBot",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; "
    "+claudebot@anthropic.com)": "ClaudeBot",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Amazonbot/0.1; "
    "+https://developer.amazon.com/support/amazonbot) Chrome/119.0.6045.214": "Amazonbot",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)": (
        "facebookexternalhit"
    ),
    "Twitterbot/1.0": "Twitterbot",
    "LinkedInBot/1.0 (compatible; Mozilla/5.0; Jakarta Commons-HttpClient/3.1 "
    "+http://www.linkedin.com)": "LinkedInBot",
    "Mozilla/5.0 (compatible; SeznamBot/4.0; +http://napoveda.seznam.cz/seznambot-intro/)": (
        "SeznamBot"
    ),
    "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)": (
        "archive"
    ),
    "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile "
    "Safari/537.36 (compatible; Bytespider; spider-feedback@bytedance.com)": "Bytespider",
    "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)": "Feedly",
    "ia_archiver (+http://www.alexa.com/site/help/webmasters; crawler@alexa.com)": "ia_archiver",
    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)": "Slackbot-LinkExpanding",
    "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)": "UptimeRobot",
    "TelegramBot (like TwitterBot)": "TelegramBot",
    "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)": "Walsh-Research",
    "examplebot (+https://bot.example/)": "examplebot",
    "Mozilla/5.0 ( Compatible ;  Example-Bot ; see https://bot.example/ )": "Example-Bot",
}
NO_BOTS = [
    BROWSER,
    "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0; Trident/5.0)",
    "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
    "Opera/9.80 (Windows NT 6.0) Presto/2.12.388 Version/12.14",
    "Mozilla/5.0 (compatible; Konqueror/3.5; Linux) KHTML/3.5.5 (like Gecko)",
    "Dalvik/2.1.0 (Linux; U; Android 9)",
    "curl/8.5.0",
    "Wget/1.21.4",
    "python-requests/2.32.3",
    "Python-urllib/3.11",
    "okhttp/4.12.0",
    "Go-http-client/1.1",
    "Java/17.0.2",
    "Scrapy/2.19.0 (+https://scrapy.org)",
    "Scrapy",
    "myproject (+http://www.yourdomain.com)",
    "A/1.0",
    "1.0",
    "",
    "(+https://bot.example/)",
]


@pytest.mark.parametrize(("agent", "token"), BOTS.items())
def test_a_bot_is_known_by_its_name(agent, token):
    assert token_in(agent) == token


@pytest.mark.parametrize("agent", NO_BOTS)
def test_a_browser_or_a_library_is_no_bot(agent):
    with pytest.raises(NoBotName):
        token_in(agent)


@given(st.text(alphabet="aB-_ 12/;(+)compatible:http.", max_size=60))
def test_a_name_is_a_token_that_the_agent_contains(agent):
    with suppress(NoBotName):
        token = token_in(agent)
        assert token in agent
        assert all(letter.isalpha() or letter in "_-" for letter in token)


@pytest.mark.parametrize(
    ("crawls", "others"),
    [
        ([], {}),
        ([("Ours", 3.0), ("Other", 2.0)], {}),
        ([("Other", 3.0), ("ours", 2.0), ("Third", 1.0)], {"Other": 3.0}),
        ([("Other", 3.0), ("", 2.5), ("other", 2.0), ("Third", 1.0)], {"Other": 3.0, "Third": 1.0}),
    ],
)
def test_bots_that_crawled_since_are_named_with_their_last_crawl(crawls, others):
    assert newest_of_others(crawls, "Ours") == others
