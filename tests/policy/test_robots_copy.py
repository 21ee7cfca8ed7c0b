"""R2, RFC 9309 2.3.1, decision 12: what a response to /robots.txt means, and for how long."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.copy import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MAX_CLOCK_SKEW_SECONDS,
    UNREACHABLE_TTL,
    RobotsCopy,
    RobotsFile,
    access_result,
    copy_after,
)
from walsh_scrapy.policy.robots.robotslint import lint
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS

DAY = 86_400.0
GOOD = b"User-agent: *\nDisallow: /private\n"


@cases("status", "hops", "has_location", "result", more=[(None, 0, False, "unreachable")])
def test_access_result_by_status(status, hops, has_location, result):
    assert access_result(status, hops, has_location=has_location) == result


HOUR = 3600.0


@pytest.mark.parametrize("policy", ["allow", "disallow", "phased"])
def test_a_response_is_obeyed_under_every_policy(policy):
    copy = copy_after(None, 0.0, 200, "good", GOOD)
    assert copy.active_body(policy, now=10.0) == GOOD
    missing = copy_after(copy, 20.0, 404, "unavailable", b"<html>gone</html>")
    assert missing.active_body(policy, now=30.0) == ALLOW_ALL


@pytest.mark.parametrize("policy", ["allow", "disallow"])
def test_after_a_failure_the_last_good_copy_decides_however_old(policy):
    copy = copy_after(copy_after(None, 0.0, 200, "good", GOOD), 300 * DAY, 503, "unreachable", b"")
    assert copy.active_body(policy, now=400 * DAY) == GOOD


@pytest.mark.parametrize(
    ("policy", "body"), [("allow", ALLOW_ALL), ("disallow", DISALLOW_ALL), ("phased", None)]
)
def test_without_a_good_copy_the_policy_decides(policy, body):
    copy = copy_after(None, 0.0, None, "unreachable", b"")
    assert copy.active_body(policy, now=60.0) == body


@cases("body", "status", "hours", "in_force")
def test_phases_start_at_the_first_failure(body, status, hours, in_force):
    """RFC 9309 2.3.1.4. The last try, which is not the first one, decides after 30 days."""
    good = None if body == "none" else body.encode()
    first = RobotsCopy(HOUR, 500, good, failing_since=HOUR)
    now = HOUR + hours * HOUR
    last = copy_after(first, now, status or None, "unreachable", b"")
    bodies = {"copy": first.body, "nothing": None, "everything": ALLOW_ALL}
    assert last.active_body("phased", now) == bodies[in_force]
    assert RobotsFile.from_copy(last, "bot", "phased", now).is_deferred == (in_force == "nothing")


def test_an_answer_ends_the_phases():
    failing = copy_after(copy_after(None, 0.0, 200, "good", GOOD), DAY, 500, "unreachable", b"")
    answered = copy_after(failing, 2 * DAY, 304, "unchanged", b"")
    again = copy_after(answered, 3 * DAY, 500, "unreachable", b"")
    assert again.active_body("phased", 3 * DAY + 11 * HOUR) is None
    assert again.active_body("phased", 3 * DAY + 12 * HOUR) == GOOD


@pytest.mark.parametrize(
    ("began", "now", "keeps"),
    [
        (1000.0 - HOUR, 1000.0, True),  # the run that requested it, however long it goes on
        (1000.0 - HOUR, 1000.0 + DAY, True),
        (1000.0 + HOUR - 1, 1000.0 + 2 * HOUR, True),
        (1000.0 + HOUR, 1000.0 + HOUR, False),
        (500.0, 990.0, False),  # the clock was set back
    ],
)
def test_a_deferring_file_is_tried_by_a_run_an_hour_later(began, now, keeps):
    copy = copy_after(None, 1000.0, 503, "unreachable", b"")
    assert copy.keeps_deferring(began, now) == keeps


def test_copy_is_usable_for_its_lifetime_and_a_failure_shorter():
    copy = copy_after(None, 1000.0, 200, "good", GOOD)
    assert copy.is_usable(1000.0 + DAY - 1, ttl=DAY)
    assert not copy.is_usable(1000.0 + DAY, ttl=DAY)
    assert copy.is_usable(1000.0 - MAX_CLOCK_SKEW_SECONDS, ttl=DAY), "another process wrote it"
    assert not copy.is_usable(999.0 - MAX_CLOCK_SKEW_SECONDS, ttl=DAY), "the clock was set back"
    failed = copy_after(copy, 1000.0, 503, "unreachable", b"")
    assert not failed.is_usable(1000.0 + UNREACHABLE_TTL, ttl=DAY)


@pytest.mark.parametrize("requested_at", [None, 999.9, 1000.2])
def test_unused_copy_is_valid_for_longer(requested_at):
    copy = copy_after(None, 1000.0, 200, "good", GOOD)
    assert copy.is_valid_unused(1000.0 + 3 * DAY - 1, 3 * DAY, requested_at)
    assert not copy.is_valid_unused(1000.0 + 3 * DAY, 3 * DAY, requested_at)
    assert not copy.is_valid_unused(999.0 - MAX_CLOCK_SKEW_SECONDS, 3 * DAY, requested_at), (
        "the clock was set back"
    )
    assert not copy.is_valid_unused(1001.0, 3 * DAY, 1001.0), (
        "the host got a request in the meantime"
    )


@pytest.mark.parametrize("failing_since", [None, 5.0])
def test_a_meaningless_answer_never_replaces_a_good_copy(failing_since):
    good = replace(copy_after(None, 0.0, 200, "good", GOOD), failing_since=failing_since)
    copy = copy_after(good, 2 * DAY, 302, "meaningless", b"")
    assert copy == replace(good, requested_at=2 * DAY, status=302)
    assert copy.active_body("allow", 2 * DAY) == GOOD
    nothing = copy_after(None, 0.0, 304, "meaningless", b"?")
    assert nothing.active_body("disallow", 1.0) == ALLOW_ALL
    failing = copy_after(
        copy_after(None, 0.0, 503, "unreachable", b""), 1.0, 304, "meaningless", b""
    )
    assert failing.active_body("disallow", 1.0) == ALLOW_ALL


def test_a_304_renews_the_copy_for_another_day():
    copy = copy_after(None, 0.0, 200, "good", GOOD).with_validators("u", b'"1"', b"then")
    failing = copy_after(copy, DAY, None, "unreachable", b"")
    assert failing.etag == b'"1"'
    renewed = copy_after(failing, 2 * DAY, 304, "unchanged", b"").with_validators("u", None, b"now")
    assert renewed == replace(copy, requested_at=2 * DAY, status=304, last_modified=b"now")
    assert renewed.is_usable(3 * DAY - 1, ttl=DAY)
    replaced = copy_after(renewed, 3 * DAY, 200, "good", b"")
    assert (replaced.etag, replaced.last_modified) == (None, None)


@cases("policy", "has_copy", "hours", "decision")
def test_decision_without_the_file_matches_its_description(policy, has_copy, hours, decision):
    copy = RobotsCopy(HOUR, 503, GOOD if has_copy else None, failing_since=HOUR)
    file = RobotsFile.from_copy(copy, "Walsh-Research", policy, HOUR * (1 + hours))
    assert decision in file.decision
    assert "until" not in file.decision, "nobody knows when a file can be read again"
    assert file.is_replaced == ("copy" not in decision)
    assert file.allows("http://a.example/feed") == (decision not in ("deferred", "denied"))
    assert file.allows("http://a.example/private") == ("crawling" in decision)
    if file.is_replaced:
        assert decision in file.why(file.rules.verdict("http://a.example/feed"))


def test_a_deferring_file_keeps_the_delay_of_its_last_copy():
    copy = RobotsCopy(HOUR, 503, b"User-agent: *\nCrawl-delay: 9\n", failing_since=HOUR)
    file = RobotsFile.from_copy(copy, "bot", "phased", HOUR)
    assert file.is_deferred
    assert file.interval(HOUR) == 9.0


# `lint`: findings about a robots.txt, for any bytes.


@cases("line", "said")
def test_only_meaningless_lines_are_errors(line, said):
    body = f"User-agent: *\nDisallow: /open\n{line}\nDisallow: /last\n".encode()
    errors = [finding for finding in lint(body) if finding.severity == "error"]
    if said:
        assert [error.line for error in errors] == [3]
        assert said in errors[0].text
    else:
        assert errors == []


@pytest.mark.parametrize(
    "body",
    [b"User-agent: *\n", b"User-agent: *", b"User-agent: a\nDisallow: /x\n\nUser-agent: *\n"],
)
def test_a_group_of_all_without_rules_is_no_error(body):
    """RFC 9309 2.2: a group may have no rules. So do generators write that all is allowed."""
    assert [finding.severity for finding in lint(body)] == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><p>Disallow: /x", "an HTML page"),
        (b"\xef\xbb\xbf \n<html>", "an HTML page"),
        (b'<?xml version="1.0"?><rss/>', "an XML document"),
        ("User-agent: *\n".encode("utf-16"), "is UTF-16"),
        (b"", "the file is empty"),
        (b" \t\v\f\r\n\n", "the file is empty"),
        (b"\x1c", r"line 1: '\x1c' has no colon, so it is not a record"),
        (b"User-agent: *\nDisallow: /\n" + b"#\n" * MAX_OCTETS, "only 500 KiB are read"),
        (b"User-agent: *\nDisallow: /caf\xe9\n", "line 2: this is not UTF-8"),
        (b"Disallow: /\n", "'Disallow: /' stands before any User-agent line"),
        (b"Crawl-delay: 2\nUser-agent: *\nDisallow: /\n", "line 1: 'Crawl-delay: 2' stands before"),
        (b"User-agent: a\nDisallow: /\n\nUser-agent: b\n", "line 4: no rule follows, so 'b' may"),
    ],
)
def test_each_problem_of_the_file_or_a_group_is_one_finding(body, said):
    (finding,) = lint(body)
    assert said in f"line {finding.line}: {finding.text}"


def test_unknown_field_is_a_note():
    (finding,) = lint(b"User-agent: *\nDisallow: /\ncolour: red\n")
    assert (finding.line, finding.severity) == (3, "note")
    assert "'colour'" in finding.text


def test_sound_file_has_no_findings():
    assert lint(b"User-agent: *\nUser-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n") == ()


KEYS = ["User-agent", "Disallow", "Disalow", "allow ", "Crawl-delay", "x", "Sitemap"]
BYTES = b":*/#\n\r \0\x1c\x85\xff"
PIECES = st.sampled_from(
    [*(f"{key}:".encode() for key in KEYS), *BYTES, b"\xef\xbb\xbf", b"/a", b"bot"]
).map(lambda piece: piece if isinstance(piece, bytes) else bytes([piece]))


@given(st.one_of(st.binary(), st.lists(PIECES).map(b"".join)))
def test_any_bytes_are_linted_in_order(body):
    findings = lint(body)
    assert list(findings) == sorted(findings, key=lambda finding: finding.line or 0)
    lines = 1 + body.count(b"\n") + body.count(b"\r")
    assert all(finding.line is None or 1 <= finding.line <= lines for finding in findings)
    assert all(finding.text.isprintable() for finding in findings)


@given(st.lists(PIECES).map(b"".join))
def test_file_without_errors_reads_the_same_in_strict_spelling(body):
    """What lint does not name is a record in the spelling of the RFC, or no record at all."""
    if any(finding.severity == "error" for finding in lint(body)):
        return
    lines = body.replace(b"\r", b"\n").split(b"\n")
    strict = b"\n".join(
        line
        for line in lines
        if not line.strip()
        or line.strip(b" \xef\xbb\xbf")
        .lower()
        .startswith(
            tuple(f"{key.strip()}".lower().encode() for key in KEYS if key not in ("Disalow", "x"))
        )
    )
    for name in ("bot", "other"):
        first, second = (RobotsTxt.parse(spelling).rules_for(name) for spelling in (body, strict))
        assert first.verdict("http://h/a").allowed == second.verdict("http://h/a").allowed
        assert first.crawl_delay == second.crawl_delay
