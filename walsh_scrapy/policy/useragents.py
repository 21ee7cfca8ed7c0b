"""The name of a bot in its User-Agent: the product token that robots.txt knows it by.

A bot names itself in the first product (``ExampleBot/1.0 (+https://bot.example/)``), or in a
comment after the products of a browser (``Mozilla/5.0 (compatible; ExampleBot/1.0; +https://...)``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names of browsers and HTTP libraries: whoever sends them names no bot.
_NO_BOTS: Final = frozenset(
    {
        "applewebkit",
        "chrome",
        "curl",
        "dalvik",
        "firefox",
        "go-http-client",
        "java",
        "konqueror",
        "mozilla",
        "msie",
        "okhttp",
        "opera",
        "python-requests",
        "python-urllib",
        "safari",
        "scrapy",
        "trident",
        "wget",
    }
)
#: The address in Scrapy's template of a project.
_TEMPLATE: Final = "yourdomain.com"
_MIN_LETTERS: Final = 2
_TOKEN: Final = re.compile("[A-Za-z_-]*")
_COMMENT: Final = re.compile(r"\(([^()]*)\)")
_COMPATIBLE: Final = re.compile(r"(?:^|;)\s*compatible\s*;\s*([^;]*)", re.IGNORECASE)
_WITH_URL: Final = re.compile(r"(?:^|;)\s*([^\s;/]+)/[^\s;]+\s*;\s*\+\s*https?:", re.IGNORECASE)


class NoBotName(ValueError):
    """A User-Agent does not name a bot. The message is a clause that says why."""


def is_token(text: str) -> bool:
    """Return True if a text is a product token as robots.txt writes it (RFC 9309 2.2.1)."""
    return bool(text) and _TOKEN.fullmatch(text) is not None


def token_in(user_agent: str) -> str:
    """Return the product token of the bot that a User-Agent names (RFC 9309 2.2.1).

    That is the product after ``compatible;`` in the last comment that has it, or else the product
    before ``; +https://...`` in a comment, or else the first product. It ends before the first
    character that no token may have: the token of ``MJ12bot/v1.4`` is ``MJ``. Raises NoBotName for
    a browser, a library, Scrapy's own User-Agent and its template, and for a name with fewer than
    two letters.
    """
    if _TEMPLATE in user_agent.lower():
        raise NoBotName(f"it has {_TEMPLATE} of Scrapy's template")
    comments = _COMMENT.findall(user_agent)[::-1]
    first_product = user_agent.strip().partition(" ")[0]
    products = [
        match[1].strip()
        for pattern in (_COMPATIBLE, _WITH_URL)
        for comment in comments
        if (match := pattern.search(comment))
    ]
    for product in (*products, first_product):
        match = _TOKEN.match(product)
        token = match[0] if match else ""
        if token.lower() not in _NO_BOTS:
            break
    else:
        raise NoBotName(f"{token} is the name of a browser or a library, and of no bot")
    if sum(letter.isalpha() for letter in token) < _MIN_LETTERS:
        raise NoBotName(f"{first_product[:50]!r} has no name of two letters or more")
    return token


def newest_of_others(crawls: Iterable[tuple[str, float]], token: str) -> dict[str, float]:
    """Return the other bots that crawled since the last crawl of a bot, and when each did last.

    ``crawls`` are product tokens and times, the newest first. A crawl without a token is skipped.
    """
    newest: dict[str, tuple[str, float]] = {}
    for name, began_at in crawls:
        if name.lower() == token.lower():
            break
        if name:
            newest.setdefault(name.lower(), (name, began_at))
    return dict(newest.values())
