"""R1: who asks. One User-Agent with every request, and nothing that tells more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.evidence import Seen, failed, not_applicable, passed
from walsh_scrapy.testing.conformance.scenario import Scenario, feed, token_of
from walsh_scrapy.testing.reply import Reply, redirect
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.evidence import Evidence, Finding

#: A page or an address of the operator (R1: "+URL").
_CONTACT: Final = re.compile(r"https?://\S|[\w.+-]+@[\w-]+\.\w")
_BROWSER: Final = re.compile(r"Mozilla/\S+ \((?!compatible;)")
_PRIVATE: Final = ("Cookie", "Referer", "Authorization")
#: A page that sets a cookie, where it redirects to, and the next page.
_ENOUGH_PAGES: Final = 3
_SETS_COOKIE: Final = {"Set-Cookie": "visitor=42; Path=/"}


def _one_user_agent(evidence: Evidence) -> Finding:
    expected, strange = evidence.user_agent, list[tuple[Seen, str]]()
    for each in evidence.everything:
        sent = each.hit.header_values("User-Agent")
        expected = expected or (sent[0] if len(sent) == 1 else None)
        if not sent or sent != [expected]:
            strange.append((each, " and ".join(sent) or "none"))
    if not evidence.everything:
        return not_applicable("it asked for nothing")
    if not strange:
        return passed(f"all {len(evidence.everything)} requests have {expected!r}")
    others = ", ".join(sorted({repr(sent) for _, sent in strange})[:3])
    reason = f"{len(strange)} requests have not {expected!r} but {others}"
    return failed(reason, [each for each, _ in strange])


def _says_who(evidence: Evidence) -> Finding:
    for each in evidence.everything:
        sent = each.hit.header("User-Agent") or ""
        if _BROWSER.search(sent):
            return failed(f"it calls itself a browser: {sent!r}", [each])
        if not _CONTACT.search(sent):
            return failed(f"{sent!r} names no page and no mail address", [each])
    if not evidence.everything:
        return not_applicable("it asked for nothing")
    sent = evidence.everything[0].hit.header("User-Agent") or ""
    return passed(f"{token_of(sent)} names a page or a mail address")


def _nothing_private(evidence: Evidence) -> Finding:
    telling = [
        each for each in evidence.everything if any(each.hit.header(name) for name in _PRIVATE)
    ]
    if telling:
        return failed("it sends a Cookie, a Referer or credentials", telling)
    if len(evidence.pages()) < _ENOUGH_PAGES:
        return not_applicable("it asked for too few pages that set a cookie or redirect")
    return passed("after Set-Cookie and a redirect no Cookie, Referer or credentials were sent")


_PLAIN: Final = (Site("plain.example", "", {"/feed.xml": feed()}),)
_SEED: Final = ("http://plain.example/feed.xml",)

SCENARIOS: Final = (
    Scenario(
        "one-user-agent",
        "R1",
        "Every request has one and the same User-Agent, that for robots.txt too",
        _one_user_agent,
        _PLAIN,
        _SEED,
    ),
    Scenario(
        "says-who",
        "R1",
        "The User-Agent names the robot, and a page or mail address of its operator",
        _says_who,
        _PLAIN,
        _SEED,
    ),
    Scenario(
        "nothing-private",
        "R1",
        "No request carries a Cookie, a Referer or credentials",
        _nothing_private,
        (
            Site(
                "private.example",
                Reply("", headers=_SETS_COOKIE),
                {
                    "/first.xml": Reply(status=302, headers={**_SETS_COOKIE, "Location": "/a.xml"}),
                    "/a.xml": feed(),
                    "/second.xml": redirect("http://elsewhere.example/b.xml"),
                },
            ),
            Site("elsewhere.example", "", {"/b.xml": feed()}),
        ),
        ("http://private.example/first.xml", "http://private.example/second.xml"),
    ),
)
