r"""A robots.txt file, and the rules for one bot in it (R2; RFC 9309 2.2; decisions 8 to 13).

>>> robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n")
>>> rules = robots.rules_for("Walsh-Research")
>>> rules.verdict("https://example.com/feed.xml").allowed
True
>>> rules.verdict("https://example.com/private/1").rule
'Disallow: /private'
>>> rules.crawl_delay
2.0

No file, URL or token raises an exception here. A hostile file can be slow to read, so the cost of
one verdict is bounded; a URL whose verdict would cost more is denied.
"""

from dataclasses import dataclass, field

from walsh_scrapy.policy.robots.records import (
    UserAgentLine,
    decode,
    most_specific_name,
    product_token,
    sitemap_values,
    user_agent_lines,
)
from walsh_scrapy.policy.robots.rules import Rules


@dataclass(frozen=True, slots=True, eq=False)
class RobotsTxt:
    """A robots.txt file, split into groups."""

    _text: str = field(repr=False)
    _user_agents: tuple[UserAgentLine, ...] = field(repr=False)

    @classmethod
    def parse(cls, body: bytes) -> "RobotsTxt":
        """Read at most 500 KiB of a robots.txt (RFC 9309 2.2 and 2.5, decision 11).

        Lines that are not records are skipped. Never raises.
        """
        text = decode(body)
        return cls(text, user_agent_lines(text))

    def rules_for(self, token: str) -> Rules:
        """Return the rules for a bot's product token (R2, RFC 9309 2.2.1, decision 8).

        They are those of all groups with the longest name that matches `token`: the token itself,
        or a leading part of it up to a hyphen. If no name matches, they are those of all "*"
        groups. Without "*" groups everything is allowed.
        """
        names = {line.name for line in self._user_agents}
        name = most_specific_name(names, product_token(token)) or "*"
        return Rules.of(self._text, tuple(line for line in self._user_agents if line.name == name))

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap values of the whole file, in order, as written (RFC 9309 2.2.4)."""
        return sitemap_values(self._text)
