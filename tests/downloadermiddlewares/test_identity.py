"""The identity gate is behind what sets the headers that it corrects."""

import pytest
from scrapy.settings import Settings

from walsh_scrapy.crawl.startup import Gate, start_problems


@pytest.mark.parametrize(
    ("order", "cookies", "words"),
    [
        (860, True, []),
        (600, True, ["before CookiesMiddleware"]),
        (600, False, []),  # then Scrapy builds no CookiesMiddleware
        (400, False, ["before UserAgentMiddleware"]),
    ],
)
def test_only_what_is_switched_on_has_to_come_before_it(order, cookies, words):
    table = {Gate.IDENTITY.path: order}
    settings = Settings({"DOWNLOADER_MIDDLEWARES": table, "COOKIES_ENABLED": cookies})
    found = [str(each) for each in start_problems(settings)]
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True)), found
