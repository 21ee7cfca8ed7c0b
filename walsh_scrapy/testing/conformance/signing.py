"""R1: who asks, proved by a signature (Web Bot Auth). Nothing here applies to who signs nothing.

A signature counts as this crawler's if it is by the key that the command is given: the directory
of another key is not asked for, because a trial asks nothing of other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.evidence import Seen, failed, not_applicable, passed
from walsh_scrapy.testing.conformance.scenario import Level, Scenario, feed
from walsh_scrapy.testing.conformance.signature import (
    Signature,
    SignatureError,
    is_signed,
    key_id,
)
from walsh_scrapy.testing.reply import redirect
from walsh_scrapy.testing.site import Certificate, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.evidence import Evidence, Finding

_NONE: Final = not_applicable("it signs no request over https")


def _over(evidence: Evidence, scheme: str) -> list[Seen]:
    return [each for each in evidence.everything if each.hit.scheme == scheme]


def _signed(evidence: Evidence) -> list[Seen]:
    return [each for each in _over(evidence, "https") if is_signed(each.as_sent)]


def _verify(evidence: Evidence) -> Finding:
    signed, wrong, strange = _signed(evidence), list[tuple[Seen, str]](), list[Seen]()
    for each in signed:
        try:
            signature = Signature.of(each.as_sent)
            signature.check()
            if evidence.key is None or signature.key_id != key_id(evidence.key):
                strange.append(each)
            else:
                signature.verify(evidence.key)
        except SignatureError as error:
            wrong.append((each, str(error)))
    if wrong:
        return failed(wrong[0][1], [each for each, _ in wrong])
    if not signed:
        return _NONE
    if len(strange) == len(signed):
        return not_applicable("it signs with another key than the one that it is given, {key}")
    if strange:
        return failed("it signs with two keys, of which it was given one", strange)
    return passed(f"all {len(signed)} signatures verify", signed)


def _own(evidence: Evidence) -> Finding:
    first: dict[str, Seen] = {}
    for each in _signed(evidence):
        for value in each.as_sent.header_values("Signature"):
            if first.setdefault(value, each) is not each:
                return failed("it sent one signature with two requests", [first[value], each])
    if len(first) < 2:
        return not_applicable("it signs fewer than two requests over https")
    return passed(f"{len(first)} requests have a signature of their own", first.values())


def _none_over_http(evidence: Evidence) -> Finding:
    plain = _over(evidence, "http")
    if shown := [each for each in plain if is_signed(each.as_sent)]:
        return failed("it sent a signature over plain http", shown)
    if not _signed(evidence):
        return _NONE
    if not plain:
        return not_applicable("it asked for nothing over http")
    return passed(f"none of {len(plain)} requests over http has a signature")


def _all(evidence: Evidence) -> Finding:
    signed, secure = _signed(evidence), _over(evidence, "https")
    if not signed:
        return _NONE
    if bare := [each for each in secure if each not in signed]:
        return failed(f"{len(bare)} of {len(secure)} requests over https are not signed", bare)
    return passed(f"all {len(secure)} requests over https are signed", signed)


_SITES: Final = (
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


def _scenario(
    name: str, asks: str, judge: Callable[[Evidence], Finding], level: Level = Level.MUST
) -> Scenario:
    return Scenario(name, "R1", asks, judge, _SITES, _SEEDS, level=level)


SCENARIOS: Final = (
    _scenario(
        "signatures-verify",
        "A signature verifies for its host and moment, and covers Signature-Agent",
        _verify,
    ),
    _scenario(
        "signature-of-its-own",
        "No two requests have one signature: a hop, a retry and robots.txt have their own",
        _own,
    ),
    _scenario("no-signature-over-http", "No signature goes over plain http", _none_over_http),
    _scenario(
        "all-signed",
        "A crawler that signs requests signs all that go over https",
        _all,
        Level.SHOULD,
    ),
)
