"""User-agent lines, groups and product tokens (RFC 9309 2.2.1, R2, decisions 8 and 9)."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.records import OTHER, RULE, USER_AGENT, Span

_TOKEN: Final = re.compile(r"([A-Za-z_-]+)\S*")
_EMPTY: Final[Span] = (0, 0)


class UserAgentLine(NamedTuple):
    """A User-agent line, and the parts of the text that hold the records of its group."""

    name: str  #: in lower case, cut as decision 8 says; "" if it names no bot
    offset: int
    others: Span  #: Crawl-delay, Request-rate, Visit-time, Comment and Robot-version
    rules: Span  #: Allow and Disallow


def user_agent_lines(text: str) -> tuple[UserAgentLine, ...]:
    """Return all User-agent lines in order, with the spans of their groups' records (decision 9).

    Consecutive User-agent lines share the records that follow. Allow and Disallow end such a list
    of lines; the other records end it only for other records. The text is read backwards, because
    a line's records come after it.
    """
    lines = []
    rules = others = _EMPTY
    end = len(text)
    for found in reversed(list(USER_AGENT.finditer(text))):
        start, following = found.start(), (found.end(), end)
        if following[0] < end and RULE.search(text, *following):
            rules = others = following
        elif following[0] < end and OTHER.search(text, *following):
            others = following
        lines.append(UserAgentLine(found[1].lower(), start, others, rules))
        end = start
    return tuple(reversed(lines))


def product_token(name: str) -> str:
    """Return a bot's product token in lower case, as it is compared with User-agent lines.

    It is cut at the first character that a token cannot have (`Bot/1.0`, `bot2`; decision 8). A
    name with a blank in it is not a token: "" is returned.

    >>> product_token("Walsh-Research/1.0")
    'walsh-research'
    """
    found = _TOKEN.fullmatch(name)
    return found[1].lower() if found else ""


def most_specific_name(names: set[str], token: str) -> str | None:
    """Return the longest of the names that match a product token; None if none does.

    The token `walsh-research` is matched by itself, `walsh-` and `walsh` (decision 8).
    """
    ends = [
        end
        for end in range(len(token), 0, -1)
        if "-" in token[end - 1 : end + 1] or end == len(token)
    ]
    return next((token[:end] for end in ends if token[:end] in names), None)


def distinct(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return each span once, without empty ones: stacked User-agent lines share their spans."""
    return tuple([span for span in dict.fromkeys(spans) if span[1]])
