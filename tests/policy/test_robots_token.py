"""The token by which a User-Agent names its crawler."""

import pytest

from walsh_scrapy.policy.robots.records import token_of
from walsh_scrapy.testing.useragent import token_of as token_of_witness


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)", "Example-Bot"),
        ("Mozilla/5.0 AppleWebKit/537.36 (KHTML; compatible; GPT_Bot; +x)", "GPT_Bot"),
        ("theirs (+https://www.their.example)", "theirs"),
        ("theirs2/1.0", "theirs"),
        ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", None),
        ("(nobody)", None),
        ("", None),
    ],
)
def test_a_token(user_agent, token):
    assert token_of(user_agent) == token


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Mozilla/5.0 (compatible; Some-Bot/1.0; +https://bot.example/)", "Some-Bot"),
        ("Mozilla/5.0 (X11) Safari/605.1 (Applebot/0.1; +http://apple.example/)", "Applebot"),
        ("python-requests/2.32", "python-requests"),
        ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla"),
        ("-", None),
        ("", None),
    ],
)
def test_the_witness_names_anything_that_it_can(user_agent, token):
    assert token_of_witness(user_agent) == token
