"""Scenarios of R1: one User-Agent for all requests, no private headers, and valid signatures.

Signatures (Web Bot Auth) are verified with the key that the command is given. Signatures by another
key are not verified, because the trial requests no key directory from other machines. The scenarios
of signatures do not apply to a crawler that signs nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Level,
    Scenario,
    Seen,
    check_rule,
    everything,
    failed,
    failed_by,
    feed,
    lacks_pages,
    not_applicable,
    passed,
    scenario,
    token_of,
)
from walsh_scrapy.testing.politeness import exact_user_agent, nothing_private
from walsh_scrapy.testing.signatures import Signature, SignatureError, is_signed, key_id
from walsh_scrapy.testing.site import Certificate, Reply, Site, redirect

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.scenario import Conclusion, TrialLog

#: A page or an address of the operator (R1: "+URL").
_CONTACT: Final = re.compile(r"https?://\S|[\w.+-]+@[\w-]+\.\w")
_BROWSER: Final = re.compile(r"Mozilla/\S+ \((?!compatible;)")
_SETS_COOKIE: Final = {"Set-Cookie": "visitor=42; Path=/"}


def _one_user_agent(evidence: TrialLog) -> Conclusion:
    values_sent = [request.hit.header_values("User-Agent") for request in evidence.everything]
    first = (values[0] for values in values_sent if len(values) == 1)
    expected = evidence.user_agent or next(first, "")
    if fault := failed_by(exact_user_agent, evidence.everything, user_agent=expected):
        return fault
    if not values_sent:
        return not_applicable("it requested nothing")
    return passed(f"all {len(values_sent)} requests have {expected!r}")


def _says_who(evidence: TrialLog) -> Conclusion:
    for request in evidence.everything:
        sent = request.hit.header("User-Agent") or ""
        if _BROWSER.search(sent):
            return failed(f"it calls itself a browser: {sent!r}", [request])
        if not _CONTACT.search(sent):
            return failed(f"{sent!r} names no page and no mail address", [request])
    if not evidence.everything:
        return not_applicable("it requested nothing")
    sent = evidence.everything[0].hit.header("User-Agent") or ""
    return passed(f"{token_of(sent)} names a page or a mail address")


_PLAIN: Final = Site("plain.example", "", {"/feed.xml": feed()})
_ELSEWHERE: Final = Site("elsewhere.example", "", {"/b.xml": feed()})
_PRIVATE: Final = Site(
    "private.example",
    Reply("", headers=_SETS_COOKIE),
    {
        "/first.xml": Reply(status=302, headers={**_SETS_COOKIE, "Location": "/a.xml"}),
        "/a.xml": feed(),
        "/second.xml": redirect("http://elsewhere.example/b.xml"),
    },
)

_NONE: Final = not_applicable("it signs no request over https")


def _requests_over(evidence: TrialLog, scheme: str) -> list[Seen]:
    return [request for request in evidence.everything if request.hit.scheme == scheme]


def _signed(evidence: TrialLog) -> list[Seen]:
    return [request for request in _requests_over(evidence, "https") if is_signed(request.as_sent)]


def _verify(evidence: TrialLog) -> Conclusion:
    signed = _signed(evidence)
    wrong: list[tuple[Seen, str]] = []
    other_key: list[Seen] = []
    for request in signed:
        try:
            signature = Signature.from_hit(request.as_sent)
            signature.check()
            if evidence.key is None or signature.key_id != key_id(evidence.key):
                other_key.append(request)
            else:
                signature.verify(evidence.key)
        except SignatureError as error:
            wrong.append((request, str(error)))
    if wrong:
        return failed(wrong[0][1], [request for request, _ in wrong])
    if not signed:
        return _NONE
    if len(other_key) == len(signed):
        return not_applicable("it signs with a key other than the one that it is given as {key}")
    if other_key:
        return failed("it signs with two keys, although it was given one", other_key)
    return passed(f"all {len(signed)} signatures verify", signed)


def _are_different(evidence: TrialLog) -> Conclusion:
    first: dict[str, Seen] = {}
    for request in _signed(evidence):
        for value in request.as_sent.header_values("Signature"):
            if first.setdefault(value, request) is not request:
                return failed("it sent one signature with two requests", [first[value], request])
    if len(first) < 2:
        return not_applicable("it signs fewer than two requests over https")
    return passed(f"{len(first)} requests have different signatures", first.values())


def _none_over_http(evidence: TrialLog) -> Conclusion:
    plain = _requests_over(evidence, "http")
    if shown := [request for request in plain if is_signed(request.as_sent)]:
        return failed("it sent a signature over plain http", shown)
    if not _signed(evidence):
        return _NONE
    if not plain:
        return not_applicable("it requested nothing over http")
    return passed(f"none of {len(plain)} requests over http has a signature")


def _are_all_signed(evidence: TrialLog) -> Conclusion:
    signed = _signed(evidence)
    secure = _requests_over(evidence, "https")
    if not signed:
        return _NONE
    if bare := [request for request in secure if request not in signed]:
        return failed(f"{len(bare)} of {len(secure)} requests over https are not signed", bare)
    return passed(f"all {len(secure)} requests over https are signed", signed)


_SIGNED: Final = (
    Site(
        "signed.example",
        "",
        {
            "/moved.xml": redirect("https://signed-too.example/feed.xml"),
            "/plain.xml": redirect("http://not-signed.example/feed.xml"),
        },
        tls=Certificate.GOOD,
    ),
    Site("signed-too.example", "", {"/feed.xml": feed()}, tls=Certificate.GOOD),
    Site("not-signed.example", "", {"/feed.xml": feed()}),
)
_SEEDS: Final = ("https://signed.example/moved.xml", "https://signed.example/plain.xml")


SCENARIOS: Final = (
    scenario(
        "R1", "one-user-agent",
        "All requests have the same User-Agent, also those for robots.txt",
        _one_user_agent, _PLAIN,
    ),
    scenario(
        "R1", "says-who",
        "The User-Agent names the robot, and a page or mail address of its operator",
        _says_who, _PLAIN,
    ),
    scenario(
        "R1", "nothing-private", "No request carries a Cookie, a Referer or credentials",
        check_rule(
            nothing_private,
            "after Set-Cookie and a redirect no Cookie, Referer or credentials were sent",
            requests=everything,
            missing=lacks_pages(3, "it requested too few pages that set a cookie or redirect"),
            fail_reason="it sends a Cookie, a Referer or credentials",
        ),
        _PRIVATE, _ELSEWHERE, paths=["/first.xml", "/second.xml"],
    ),
    Scenario(
        "signatures-verify", "R1",
        "A signature verifies for its host and moment, and covers Signature-Agent",
        _verify, _SIGNED, _SEEDS,
    ),
    Scenario(
        "signature-of-its-own", "R1",
        "No two requests have the same signature, not even a redirect or a retry",
        _are_different, _SIGNED, _SEEDS,
    ),
    Scenario(
        "no-signature-over-http", "R1", "No signature is sent over plain http",
        _none_over_http, _SIGNED, _SEEDS,
    ),
    Scenario(
        "all-signed", "R1", "A crawler that signs requests signs all of them over https",
        _are_all_signed, _SIGNED, _SEEDS, level=Level.SHOULD,
    ),
)  # fmt: skip
