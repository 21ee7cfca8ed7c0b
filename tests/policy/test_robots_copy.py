"""R2, RFC 9309 2.3.1, decision 12: what a response to /robots.txt means, and for how long."""

from dataclasses import replace

import pytest

from tests.helpers import cases
from walsh_scrapy.policy.robots.copy import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MOST_SKEW,
    PHASE_DISALLOW,
    PHASE_LAST_GOOD,
    UNREACHABLE_TTL,
    RobotsCopy,
    RobotsFile,
    access_result,
    copy_after,
)

DAY = 86_400.0
GOOD = b"User-agent: *\nDisallow: /private\n"


@cases("status", "hops", "has_location", "result", more=[(None, 0, False, "unreachable")])
def test_access_result_by_status(status, hops, has_location, result):
    assert access_result(status, hops, has_location=has_location) == result


@pytest.mark.parametrize("policy", ["allow", "disallow", "phased"])
def test_a_response_is_obeyed_under_every_policy(policy):
    copy = copy_after(None, 0.0, 200, "good", GOOD)
    assert copy.effective_body(policy, now=10.0) == GOOD
    missing = copy_after(copy, 20.0, 404, "unavailable", b"<html>gone</html>")
    assert missing.effective_body(policy, now=30.0) == ALLOW_ALL


@pytest.mark.parametrize("policy", ["allow", "disallow"])
def test_after_a_failure_the_last_good_copy_decides_however_old(policy):
    copy = copy_after(copy_after(None, 0.0, 200, "good", GOOD), 300 * DAY, 503, "unreachable", b"")
    assert copy.effective_body(policy, now=400 * DAY) == GOOD


@pytest.mark.parametrize(
    ("policy", "body"), [("allow", ALLOW_ALL), ("disallow", DISALLOW_ALL), ("phased", DISALLOW_ALL)]
)
def test_without_a_good_copy_the_policy_decides(policy, body):
    copy = copy_after(None, 0.0, None, "unreachable", b"")
    assert copy.effective_body(policy, now=60.0) == body


def test_the_three_phases():
    good = copy_after(None, 0.0, 200, "good", GOOD)
    failing = copy_after(good, 1000.0, 500, "unreachable", b"")
    assert failing.effective_body("phased", 1000.0 + PHASE_DISALLOW - 1) == DISALLOW_ALL
    again = copy_after(failing, 50_000.0, 503, "unreachable", b"")
    assert again.failing_since == 1000.0, "the phases count from the first failure"
    assert again.effective_body("phased", 1000.0 + PHASE_DISALLOW) == GOOD
    assert again.effective_body("phased", 1000.0 + PHASE_LAST_GOOD) == ALLOW_ALL
    silent = copy_after(again, 60_000.0, None, "unreachable", b"")
    assert silent.effective_body("phased", 1000.0 + PHASE_LAST_GOOD) == DISALLOW_ALL


def test_a_copy_is_usable_for_its_lifetime_and_a_failure_for_a_shorter_one():
    copy = copy_after(None, 1000.0, 200, "good", GOOD)
    assert copy.is_usable(1000.0 + DAY - 1, ttl=DAY)
    assert not copy.is_usable(1000.0 + DAY, ttl=DAY)
    assert copy.is_usable(1000.0 - MOST_SKEW, ttl=DAY), "another process wrote it"
    assert not copy.is_usable(999.0 - MOST_SKEW, ttl=DAY), "the clock was set back"
    failed = copy_after(copy, 1000.0, 503, "unreachable", b"")
    assert not failed.is_usable(1000.0 + UNREACHABLE_TTL, ttl=DAY)


@pytest.mark.parametrize("asked_at", [None, 999.9, 1000.2])
def test_a_copy_that_no_request_has_followed_counts_for_longer(asked_at):
    copy = copy_after(None, 1000.0, 200, "good", GOOD)
    assert copy.is_awaited(1000.0 + 3 * DAY - 1, 3 * DAY, asked_at)
    assert not copy.is_awaited(1000.0 + 3 * DAY, 3 * DAY, asked_at)
    assert not copy.is_awaited(999.0 - MOST_SKEW, 3 * DAY, asked_at), "the clock was set back"
    assert not copy.is_awaited(1001.0, 3 * DAY, 1001.0), "its host was asked since"


@pytest.mark.parametrize("failing_since", [None, 5.0])
def test_a_meaningless_answer_never_replaces_a_good_copy(failing_since):
    good = replace(copy_after(None, 0.0, 200, "good", GOOD), failing_since=failing_since)
    kept = copy_after(good, 2 * DAY, 302, "meaningless", b"")
    assert kept == replace(good, fetched_at=2 * DAY, status=302)
    assert kept.effective_body("allow", 2 * DAY) == GOOD
    nothing = copy_after(None, 0.0, 304, "meaningless", b"?")
    assert nothing.effective_body("disallow", 1.0) == ALLOW_ALL
    failing = copy_after(
        copy_after(None, 0.0, 503, "unreachable", b""), 1.0, 304, "meaningless", b""
    )
    assert failing.effective_body("disallow", 1.0) == ALLOW_ALL


def test_a_304_renews_the_copy_for_another_day():
    copy = copy_after(None, 0.0, 200, "good", GOOD).with_validators("u", b'"1"', b"then")
    failing = copy_after(copy, DAY, None, "unreachable", b"")
    assert failing.etag == b'"1"'
    renewed = copy_after(failing, 2 * DAY, 304, "unchanged", b"").with_validators("u", None, b"now")
    assert renewed == replace(copy, fetched_at=2 * DAY, status=304, last_modified=b"now")
    assert renewed.is_usable(3 * DAY - 1, ttl=DAY)
    replaced = copy_after(renewed, 3 * DAY, 200, "good", b"")
    assert (replaced.etag, replaced.last_modified) == (None, None)


@pytest.mark.parametrize(
    ("policy", "body", "hours", "decision"),
    [
        ("allow", None, 0, "WALSH_ROBOTS_UNREACHABLE decides: everything is allowed"),
        ("disallow", None, 0, "WALSH_ROBOTS_UNREACHABLE decides: everything is denied"),
        ("allow", GOOD, 0, "the last good copy decides"),
        ("phased", GOOD, 0, "everything is denied until 1970-01-01 13:00:00 UTC"),
        ("phased", GOOD, 12, "the last good copy decides"),
        ("phased", None, 12, "everything is denied until 1970-01-31 01:00:00 UTC"),
        ("phased", None, 30 * 24, "WALSH_ROBOTS_UNREACHABLE decides: everything is allowed"),
    ],
)
def test_what_decides_without_the_file_is_said_as_it_is_done(policy, body, hours, decision):
    hour = 3600.0
    copy = RobotsCopy(hour, 503, body, failing_since=hour)
    now = hour * (1 + hours)
    assert copy.decision(policy, now).endswith(decision)
    file = RobotsFile.read(copy, "Walsh-Research", policy, now)
    verdict = file.rules.verdict("http://a.example/feed")
    if file.is_replaced:
        assert file.why(verdict).endswith(decision)
        assert decision.endswith("allowed") is verdict.allowed
    silent = RobotsCopy(hour, None, None, failing_since=hour)
    assert silent.decision("phased", 31 * DAY).endswith(
        "everything is denied until the host answers"
    )
