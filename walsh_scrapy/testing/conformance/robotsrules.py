"""R2: what the lines of a robots.txt mean, one host a case.

The cases are those of RFC 9309 2.2, of the worked examples of webcanon.robots, and of the extended
standard 2.0, which a crawler MAY read. Each host has a page that is allowed, so that a crawler
which never comes that far is not taken for one that obeys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from walsh_scrapy.testing.conformance.scenario import (
    Level,
    failed_by,
    feed,
    not_applicable,
    passed,
    robots,
    scenario,
)
from walsh_scrapy.testing.politeness import robots_obeyed
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Judgement, Scenario, TrialLog
    from walsh_scrapy.testing.reply import Page


def obeys(
    denied: Sequence[str], allowed: Sequence[str], host: str | None = None
) -> Callable[[TrialLog], Judgement]:
    """Return a judge that fails if a denied path was asked for, of one host or of all."""

    def judge(evidence: TrialLog) -> Judgement:
        seen, hosts = evidence.seen(host=host), [host] if host else evidence.hosts
        urls = [f"http://{name}{path}$" for name in hosts for path in denied]
        files = [each for each in seen if each.is_robots]
        reason = "it asked for what robots.txt denies"
        if fault := failed_by(robots_obeyed, seen, reason, files[:1], denied=urls):
            return fault
        if not files:
            return not_applicable("it never asked for robots.txt")
        asked = {unquote(each.hit.path) for each in seen}
        if missing := [path for path in allowed if unquote(path) not in asked]:
            return not_applicable(f"it never asked for {missing[0]}, which is allowed")
        told = f"asked for {', '.join(allowed)}, " if allowed else ""
        return passed(f"{told}not for {', '.join(denied)}", seen)

    return judge


_MANY_LINES: Final = "".join(f"Disallow: /{number:06}/\n" for number in range(15_000))


#: Longer than the lines that some parsers read.
_LONG: Final = "long" * 400


def _case(
    name: str,
    asks: str,
    text: Page,
    denied: Sequence[str],
    allowed: Sequence[str] = ("/feed.xml",),
    level: Level = Level.MUST,
) -> Scenario:
    """Return the scenario of a robots.txt: a feed is at each of these paths."""
    paths = (*allowed, *denied)
    site = Site(f"{name}.example", text, {path.partition("?")[0]: feed() for path in paths})
    return scenario("R2", name, asks, obeys(denied, allowed), site, paths=paths, level=level)


SCENARIOS: Final = (
    _case(
        "disallow", "A Disallow counts for all paths that begin with it",
        robots("User-agent: *\nDisallow: /private\n"),
        ["/private/a.xml", "/private.xml"], ["/public/a.xml"],
    ),
    _case(
        "longest-match", "The longest rule decides, wherever it stands; Allow wins a tie",
        robots(
            "User-agent: *\nAllow: /\nDisallow: /docs\nAllow: /docs/public\n"
            "Disallow: /docs/public/no\n"
        ),
        ["/docs/secret.xml", "/docs/public/no.xml"], ["/docs/public/a.xml"],
    ),
    _case(
        "end-of-path", "`$` is the end of path and query",
        robots("User-agent: *\nDisallow: /*.pdf$\n"), ["/file.pdf"], ["/file.pdf?x=1"],
    ),
    _case(
        "wildcard", "`*` is any run of characters, also in the query",
        robots("User-agent: *\nDisallow: /*/internal/\nDisallow: /*?*session=\n"),
        ["/a/internal/feed.xml", "/feed.xml?session=1"],
    ),
    _case(
        "wildcard-over-segments", "`*` crosses `/`, before `$` too",
        robots("User-agent: *\nDisallow: /a/*/z.xml\nDisallow: /*.json$\n"),
        ["/a/b/c/z.xml", "/x/y/feed.json"], ["/feed.xml", "/a/z.xml", "/x/y/feed.json?x=1"],
    ),
    _case(
        "named-group-denies", "A group that names the crawler overrides `*`, where it denies",
        robots("User-agent: *\nAllow: /\n\nUser-agent: {token}\nDisallow: /not-you/\n"),
        ["/not-you/feed.xml"],
    ),
    _case(
        "named-group-exempts", "A group that names the crawler overrides `*`, where it allows",
        robots("User-agent: {token}\nDisallow: /not-you/\n\nUser-agent: *\nDisallow: /\n"),
        ["/not-you/feed.xml"],
    ),
    _case(
        "other-group",
        "A group that names another crawler does not count, though it begins alike",
        robots("User-agent: {token}-Other\nAllow: /\n\nUser-agent: *\nDisallow: /no/\n"),
        ["/no/feed.xml"],
    ),
    _case(
        "groups-merged", "All groups that name the crawler count as one",
        robots(
            "User-agent: {token}\nDisallow: /a/\n\nUser-agent: *\nAllow: /\n\n"
            "User-agent: {token}\nDisallow: /b/\n"
        ),
        ["/a/feed.xml", "/b/feed.xml"],
    ),
    _case(
        "group-of-several",
        "User-agent lines in a row share the rules that follow, whatever stands between",
        robots(
            "User-agent: {token}\nSitemap: http://group-of-several.example/map.xml\n"
            "User-agent: other\nDisallow: /no/\n"
        ),
        ["/no/feed.xml"],
    ),
    _case(
        "case", "Field names and product tokens are the same in any case; paths are not",
        robots("USER-AGENT: {TOKEN}\ndisALLOW: /Secret\n"), ["/Secret.xml"], ["/secret.xml"],
    ),
    _case(
        "percent-encoding", "Percent-encoded and plain characters of a path are the same",
        robots("User-agent: *\nDisallow: /%7Ejoe/\nDisallow: /caf\u00e9/\n"),
        ["/~joe/feed.xml", "/caf%C3%A9/feed.xml"],
    ),
    _case(
        "byte-order-mark", "A byte order mark before the first line is ignored",
        robots("\ufeffUser-agent: *\nDisallow: /no/\n"), ["/no/feed.xml"],
    ),
    _case(
        "line-ends", "A carriage return alone ends a line",
        robots("User-agent: *\nDisallow: /no/\n", end="\r"), ["/no/feed.xml"],
    ),
    _case(
        "spaces-and-comments", "Spaces around names and values, and comments, are ignored",
        robots("# ours\n  User-agent :  * # all\n\n\tDisallow :\t/no/ # never\n"),
        ["/no/feed.xml"],
    ),
    _case(
        "media-type", "A robots.txt counts whatever its media type",
        robots("User-agent: *\nDisallow: /no/\n", content_type="text/html"), ["/no/feed.xml"],
    ),
    _case(
        "late-line", "At least the first 500 KiB count",
        robots(f"User-agent: *\n{_MANY_LINES}Disallow: /no/\n"), ["/no/feed.xml"],
    ),
    _case(
        "long-lines", "A long line counts to its end, and so do those after it",
        robots(f"# {'-' * 9000}\nUser-agent: *\nDisallow: /{_LONG}/no/\nDisallow: /no/\n"),
        [f"/{_LONG}/no/feed.xml", "/no/feed.xml"], ["/feed.xml", f"/{_LONG}/feed.xml"],
    ),
    _case(
        "visit-time", "Extended standard 2.0: outside of Visit-time nothing is asked for",
        robots(
            "User-agent: {token}\nVisit-time: {closed}\n\nUser-agent: *\nVisit-time: {closed}\n"
        ),
        ["/feed.xml"], (), Level.MAY,
    ),
    _case(
        "version-2",
        "Extended standard 2.0: in a group of version 2 the first rule that matches decides",
        robots("User-agent: *\nRobot-version: 2.0\nDisallow: *.cgi\nAllow: /feeds/a.cgi\n"),
        ["/feeds/a.cgi"], level=Level.MAY,
    ),
)  # fmt: skip
