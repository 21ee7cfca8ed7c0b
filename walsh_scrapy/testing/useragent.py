"""Whom a User-Agent names: its product token, and whether all who send it are one bot."""

import re
from enum import Enum
from typing import Final


class Sender(Enum):
    """Who may send a User-Agent."""

    BOT = "one bot"  #: it names itself and a page about it
    MANY = "by address"  #: a program that many people run, or one without a page
    PERSON = "a person"  #: a browser


_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)")
_BEFORE_PAGE: Final = re.compile(r"([A-Za-z_-]+)/[\w.]+[;,]?\s*\(?\+?https?://")
_PAGE: Final = re.compile(r"https?://[^\s;,)]", re.IGNORECASE)
_MOZILLA: Final = "mozilla"
_BROWSERS: Final = frozenset(
    {_MOZILLA, "msie", "konqueror", "opera", "lynx", "links", "elinks", "dillo", "netsurf"}
)
#: Feed readers and libraries: their page is about the program, and not about who runs it.
_PROGRAMS: Final = re.compile(
    r"rss|feed|atom|reader|podcast|akregator|feedparser|liferea|miniflux|netnewswire|newsboat|"
    r"nextcloud|newsflash|selfoss|thunderbird|vienna|yarr|github\.com|gitlab|codeberg|"
    r"sourceforge|scrapy\.org|pypi\.|npmjs|readthedocs",
    re.IGNORECASE,
)


def token_of(user_agent: str) -> str | None:
    """Return the product token: after `compatible;`, else its first word; None without one.

    Where that is the Mozilla of all browsers, the product right before a page counts.
    """
    found = _COMPATIBLE.search(user_agent) or _FIRST.search(user_agent)
    if found and found[1].lower() == _MOZILLA:
        found = _BEFORE_PAGE.search(user_agent) or found
    return found[1] if found else None


def sender_of(user_agent: str) -> Sender:
    """Return who may send a User-Agent; in doubt many may."""
    token = token_of(user_agent)
    if token and token.lower() in _BROWSERS:
        return Sender.PERSON
    is_one = token and _PAGE.search(user_agent) and not _PROGRAMS.search(user_agent)
    return Sender.BOT if is_one else Sender.MANY
