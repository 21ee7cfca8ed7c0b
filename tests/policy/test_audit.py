"""The audit of robots.txt, gaps and holds: what brought a copy, whose hold it is (R2, R4, R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import sent
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.clocks import SetClocks, Timed
from walsh_scrapy.policy.audit.pace import Frequency, HostPace
from walsh_scrapy.policy.audit.permission import RobotsFetches, RobotsOfRequests
from walsh_scrapy.policy.audit.record import (
    AFTER_UNKNOWN,
    DAY,
    END_UNKNOWN,
    Basis,
    Documents,
    LoggedOverride,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.audit.targets import Targets
from walsh_scrapy.state.documents import hash_of

YEAR = 365 * DAY
RULES = b"User-agent: *\nDisallow: /private\n"
TERMS = RunTerms(0.0, None, RunFacts("", "", "", "", "host", "allow", "declared", ""))


def released(at, host="a.example"):
    return LoggedOverride(at, host, "release")


def kinds(*requests, overrides=(), list_hosts=frozenset()):
    findings = Findings()
    basis = Basis({}, overrides, list_hosts, Documents({}.get))
    audit = HostPace(findings, basis, RobotsFetches(basis))
    for each in requests:
        audit.see(each)
    audit.end()
    return {kind.label: count for kind, count in findings.broken.items()}


def unshown(*requests):
    """What rows 4 and 5 cannot show, by row and reason."""
    findings, basis = Findings(), Basis({1: TERMS}, (), frozenset(), Documents({}.get))
    audit = HostPace(findings, basis, RobotsFetches(basis))
    for each in requests:
        audit.see(each._replace(run=1))
    return dict(findings.unshown), [kind.label for kind in findings.found]


def test_the_end_of_a_killed_run_is_counted_as_unknown_and_nobody_is_accused():
    """Decision 37: its last request may have been sent, and the next may have come too soon."""
    killed = sent(10.0, duration=None, status=None)
    known = {("5", END_UNKNOWN): 1}
    after = {("4", AFTER_UNKNOWN): 1}
    assert unshown(sent(0.0), killed) == (known, [])
    assert unshown(killed, sent(10.5), sent(12.5)) == (known | after, [])
    assert unshown(killed, sent(10.5), sent(11.6)) == (known | after, ["short-pause"])
    assert unshown(sent(0.0), sent(1.1, duration=None, status=None)) == (known, ["short-pause"])
    held = sent(0.0, status=429, hold=60.0)
    assert unshown(held, killed._replace(requested_at=70.0), sent(70.5))[1] == []
    assert unshown(held, killed)[1] == ["too-early"], "it was leased during a hold"


def test_a_request_counts_as_ended_by_when_it_was_sent():
    assert kinds(sent(0.0, connect_duration=3.0, duration=1.0), sent(4.5)) == {"short-pause": 1}
    assert kinds(sent(0.0, connect_duration=3.0, duration=1.0), sent(5.0)) == {}


def judged_robots(*requests, policy="allow", since=0.0):
    """What row 2 finds: the breaches by kind, and what is not shown."""
    findings = Findings()
    run = RunTerms(0.0, None, RunFacts("", "", "", "", "host", policy, "declared", ""))
    copies = {hash_of(body): body for body in (b"", RULES)}
    audit = RobotsOfRequests(
        findings, Basis({1: run}, (), frozenset(), Documents(copies.get), since)
    )
    for each in requests:
        audit.see(each)
    breaches = {kind.label: count for kind, count in findings.broken.items()}
    return breaches or list(findings.unshown.elements())


def asked(at, status=200, body=RULES, **columns):
    """A request for robots.txt, after which a copy counts; None if nothing was read."""
    name = None if body is None else hash_of(body)
    given = {"robots": name, "robots_at": at + 1.0, "purpose": "robots", "run": 1}
    return sent(at, "http://a.example/robots.txt", **given | {"status": status} | columns)


def target(at, requested_at, body=RULES, **columns):
    """A request by the copy that was asked for at a moment; None if there was none."""
    name = None if body is None else hash_of(body)
    return sent(at, robots=name, robots_at=requested_at, run=1, **columns)


GOOD = (asked(0.0), target(3.0, 1.0))


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, b"", []),
        (304, RULES, []),
        (304, b"", {"other-copy": 1}),
        (301, b"", []),
        (404, b"", []),
        (404, RULES, {"other-copy": 1}),
        (503, RULES, []),
        (503, b"", {"other-copy": 1}),
        (503, None, {"other-copy": 2}),
        (None, RULES, []),
        (429, b"", {"other-copy": 1}),
    ],
)
def test_after_each_answer_a_copy_counts_that_it_may_lead_to(status, body, found):
    """Decision 12; a file that was read before is the last good copy."""
    again = asked(DAY, status, body)
    assert judged_robots(*GOOD, again, target(DAY + 3.0, DAY + 1.0, body)) == found


@pytest.mark.parametrize(
    ("policy", "found"), [("allow", []), ("disallow", {"denied": 1}), ("phased", ["2"])]
)
def test_without_any_copy_the_setting_decides(policy, found):
    requests = asked(0.0, 503, None), target(3.0, 1.0, None, robots_status=503)
    judged = judged_robots(*requests, policy=policy)
    assert (judged if isinstance(judged, dict) else [row for row, _ in judged]) == found


@pytest.mark.parametrize(
    ("hours", "status", "body", "found"),
    [
        (1, 503, RULES, {"denied": 1}),
        (11, None, RULES, {"denied": 1}),
        (13, 503, RULES, []),
        (13, 503, None, {"denied": 1}),
        (700, 503, None, {"denied": 1}),
        (721, 503, None, ["2"]),
        (721, None, None, {"denied": 1}),
    ],
)
def test_what_phased_defers_is_a_finding_if_it_was_sent(hours, status, body, found):
    """RFC 9309 2.3.1.4: the phases count from the first failure after an answer."""
    first = asked(DAY, 503, RULES, robots_status=503)
    last = asked(DAY + hours * 3600.0, status, RULES, robots_status=status)
    requests = (
        asked(0.0, robots_status=200),
        first,
        last,
        target(last.requested_at + 3.0, last.robots_at, body, robots_status=status),
    )
    judged = judged_robots(*requests, policy="phased")
    rows = judged if isinstance(judged, dict) else [row for row, _ in judged]
    assert rows == found


def test_a_first_failure_that_is_not_in_the_log_is_no_finding():
    failing = asked(0.0, 503, RULES, robots_status=503)
    request = target(3.0, 1.0, RULES, robots_status=503)
    assert judged_robots(failing, request, policy="phased") == []
    moved = asked(DAY, 301, RULES, robots_status=None)
    again = asked(20 * DAY, 503, RULES, robots_status=503)
    late = target(20 * DAY + 3.0, again.robots_at, RULES, robots_status=503)
    answered = asked(0.0, robots_status=200)
    assert judged_robots(answered, moved, again, late, policy="phased") == []


def test_what_was_asked_for_more_than_a_day_ago_is_old_whether_there_was_a_copy_or_not():
    assert judged_robots(asked(0.0), target(DAY + 3000.0, 1.0)) == []
    assert judged_robots(asked(0.0), target(DAY + 3700.0, 1.0)) == {"old-robots": 1}
    failed = asked(0.0, 503, None)
    assert judged_robots(failed, target(DAY + 3700.0, 1.0, None)) == {"old-robots": 1}


def test_a_failure_that_ended_without_a_request_keeps_the_last_good_copy():
    """The 30 s of robots.txt were over during a gap (decision 28): no request names the end."""
    failed = asked(DAY, 503, robots=None, robots_at=None)
    assert judged_robots(*GOOD, failed, target(DAY + 900.0, DAY + 800.0)) == []
    assert judged_robots(*GOOD, failed, target(DAY + 900.0, DAY + 800.0, b"")) == {"other-copy": 1}
    assert judged_robots(failed, target(DAY + 900.0, DAY + 800.0, None)) == []
    late = target(2 * DAY + 900.0, 2 * DAY + 800.0)
    assert judged_robots(*GOOD, failed, late) == {"unasked-robots": 1}


def test_a_moment_that_no_request_for_robots_txt_had_is_made_up():
    assert judged_robots(asked(0.0, robots_at=3000.0), target(3001.0, 3000.0)) == {
        "unasked-robots": 1
    }
    hop = asked(0.0, redirected_from="http://b.example/robots.txt")
    assert judged_robots(hop, target(3.0, 1.0)) == {"unasked-robots": 1}, "it is that of b.example"


def test_what_was_asked_for_before_the_record_begins_is_no_breach():
    assert judged_robots(target(3.0, 1.0), since=2.0) == []
    assert judged_robots(target(3.0, 1.0), since=1.0) == {"unasked-robots": 1}


def test_a_copy_that_was_not_in_use_for_a_month_may_be_lost():
    """The state keeps it for 90 days, and the log may be kept for longer."""
    failing = asked(91 * DAY, 503, None), target(91 * DAY + 3.0, 91 * DAY + 1.0, None)
    assert judged_robots(*GOOD, *failing) == []


def test_a_hold_counts_for_the_list_for_a_day_from_its_begin():
    """Also for the second request after that day, whose record says what is left of the hold."""
    refused = sent(0.0, status=429, hold=YEAR)
    robots = sent(DAY + 1.0, "http://a.example/robots.txt", purpose="robots", hold=YEAR - DAY - 1)
    the_list = sent(DAY + 3.0, purpose="blocklist", hold=YEAR - DAY - 3)
    hosts = frozenset({"a.example"})
    assert kinds(refused, robots, the_list, list_hosts=hosts) == {}
    assert kinds(refused, robots, list_hosts=frozenset()) == {"too-early": 1}
    assert kinds(refused, sent(9.0, purpose="blocklist"), list_hosts=hosts) == {"too-early": 1}
    assert kinds(refused, sent(DAY + 1.0), list_hosts=hosts) == {"too-early": 1}, "no target"


def test_a_release_ends_the_hold_before_it_and_no_later_one():
    refused, made = sent(0.0, status=429, hold=YEAR), [released(10.0)]
    again = sent(12.0, status=429, hold=100.0)
    assert kinds(refused, sent(9.0), sent(12.0), overrides=made) == {"too-early": 1}
    assert kinds(refused, again, sent(20.0), overrides=made) == {"too-early": 1}
    assert kinds(refused, again, sent(113.0), overrides=made) == {}


def test_by_domain_gaps_holds_and_refusals_are_those_of_the_domain():
    """Decision 5."""
    a, b = ("http://a.example.com/", "example.com"), ("http://b.example.com/", "example.com")
    refused = sent(0.0, *a, status=429, hold=100.0)
    assert kinds(refused, sent(1.5, *b)) == {"short-pause": 1, "too-early": 1}
    assert kinds(refused, sent(2.0, *b)) == {"too-early": 1}
    assert kinds(refused, sent(2.0, *b), overrides=[released(1.0, "example.com")]) == {}


@pytest.mark.parametrize(
    ("purpose", "status", "found"),
    [
        ("target", 500, {}),
        ("robots", 500, {"no-hold": 1}),
        ("target", 503, {"no-hold": 1}),
        ("blocklist", 429, {"no-hold": 1}),
        ("target", None, {}),
    ],
)
def test_a_refusal_needs_a_hold(purpose, status, found):
    assert kinds(sent(0.0, purpose=purpose, status=status)) == found


def test_a_refusal_that_did_not_come_as_a_whole_needs_no_hold():
    assert kinds(sent(0.0, status=503, error="it ended before it was complete")) == {}


@pytest.mark.parametrize(("error", "found"), [("", 1), ("it ended before it was complete", 0)])
def test_an_answer_that_did_not_come_as_a_whole_is_no_visit(error, found):
    findings = Findings()
    basis = Basis({1: TERMS, 2: TERMS}, (), frozenset(), Documents({}.get))
    audit = Frequency(findings, basis)
    for each in (sent(0.0, run=1, error=error), sent(9.0, run=2, error="")):
        audit.see(each)
    assert findings.broken.total() == found


# The audit of row 6: what declares a request, and what leads to it (decisions 16, 21 and 39).

LIST, SCHEMA = "http://operator.example/list.json", "http://operator.example/schema.json"
SOURCE, PAGE = "http://a.example/feed", "http://page.example/"
DECLARED = f"feed {SOURCE}\nllms {PAGE}".encode()
FACTS = RunFacts("", UA_TOKEN, LIST, SCHEMA, "host", "allow", "declared", "sources")


def judged(*requests, since=0.0, moved=None, **terms):
    """What row 6 finds: the number of breaches, or what is not shown, or "holds"."""
    findings = Findings()
    run = RunTerms(**{"started_at": 0.0, "ended_at": None, "facts": FACTS} | terms)
    documents = Documents({"sources": DECLARED}.get)
    runs = {1: run, 2: run}
    audit = Targets(
        findings, Basis(runs, (), frozenset(), documents, since=since, moved=moved or {})
    )
    for each in requests:
        audit.see(each)
    unshown = [reason for _, reason in findings.unshown]
    return findings.broken.total() or unshown or "holds"


def asking(at, url, source=None, **columns):
    given = {"run": 1, "source": source, "gates": "blocklist: not listed; robots: allowed"}
    return sent(at, url, **given | columns)


def hop(at, url, by, **columns):
    return asking(at, url, redirected_from=by, **columns)


@pytest.mark.parametrize(
    "request_",
    [
        asking(1.0, SOURCE, SOURCE),
        asking(1.0, SOURCE),
        asking(1.0, PAGE, PAGE),
        asking(1.0, f"{PAGE}llms.txt", PAGE),
        asking(1.0, "http://b.example/robots.txt", purpose="robots"),
        asking(1.0, LIST, purpose="blocklist"),
        asking(1.0, SCHEMA, purpose="blocklist"),
    ],
)
def test_what_is_declared_and_what_the_rules_name_holds(request_):
    assert judged(request_) == "holds"


@pytest.mark.parametrize(
    "request_",
    [
        asking(1.0, "http://a.example/1.png", SOURCE),
        asking(1.0, "http://a.example/1.png"),
        asking(1.0, "http://a.example/llms.txt", SOURCE),
        asking(1.0, f"{PAGE}about", PAGE),
        asking(1.0, "http://b.example/feed", "http://b.example/feed"),
        asking(1.0, "http://a.example/page", purpose="robots"),
        asking(1.0, "http://a.example/page", purpose="blocklist"),
        hop(1.0, "http://a.example/page", SOURCE, source=SOURCE),
    ],
)
def test_what_no_source_declares_is_a_breach(request_):
    assert judged(request_) == 1
    assert judged(asking(0.5, SOURCE, SOURCE), request_) == 1, "also after the source itself"


def test_a_redirect_belongs_to_what_redirected_in_the_same_run():
    first = asking(1.0, SOURCE, SOURCE, status=302)
    second = hop(3.0, "http://b.example/1", SOURCE, source=SOURCE, status=301)
    third = hop(5.0, "http://c.example/2", "http://b.example/1", source=SOURCE)
    assert judged(first, second, third) == "holds"
    assert judged(first, third) == 1, "what redirected there is not recorded"
    assert judged(first._replace(status=200), second) == 1
    assert judged(first._replace(status=304), second) == 1
    assert judged(first, second._replace(run=2)) == 1
    early = judged(second, since=0.5)
    assert early == ["names a redirect that may be older than the state"]


@pytest.mark.parametrize(
    ("url", "by_gate", "found"),
    [
        ("http://10.1.2.3/feed", "", 1),
        ("http://wiki.internal/feed", "", 1),
        ("http://10.1.2.3/feed", "; privatehosts: from a private host", "holds"),
        ("http://93.184.215.14/feed", "", "holds"),
    ],
)
def test_a_public_host_may_not_lead_to_a_private_one(url, by_gate, found):
    first = asking(1.0, SOURCE, SOURCE, status=302)
    second = hop(3.0, url, SOURCE, source=SOURCE)
    assert judged(first, second._replace(gates=second.gates + by_gate)) == found


def test_a_source_that_moved_is_asked_for_at_its_new_address():
    new = "http://new.example/feed"
    direct = asking(DAY, new, SOURCE)
    told = direct._replace(gates="blocklist: not listed; scope: moved; robots: allowed")
    assert judged(direct, moved={SOURCE: new}) == "holds"
    seen = (
        asking(1.0, SOURCE, SOURCE, status=301),
        hop(3.0, new, SOURCE, source=SOURCE),
    )
    assert judged(*seen, direct) == "holds"
    assert judged(direct) == 1
    assert judged(told) == ["was requested where a source had moved to, which is not recorded"]
    page = asking(DAY, "http://new.example/llms.txt", PAGE)
    assert judged(page, moved={PAGE: "http://new.example/"}) == "holds"


def test_a_page_without_a_feed_may_announce_three_documents_on_its_own_server():
    page = asking(0.0, PAGE, PAGE)
    said = {"source": PAGE, "gates": "blocklist: not listed; scope: announced; robots: allowed"}
    documents = [asking(float(number), f"{PAGE}{number}.md", **said) for number in range(1, 5)]
    assert judged(page, *documents[:3]) == "holds"
    assert judged(page, *documents[:3], *documents[:3]) == "holds", "the same ones again"
    assert judged(page, *documents) == 1, "one too many"
    assert judged(*documents[:3]) == 3, "the page was not asked"
    assert judged(page, documents[0]._replace(gates="blocklist: not listed")) == 1
    assert judged(page, asking(1.0, "http://b.example/1.md", **said)) == 1, "another server"
    feed = said | {"source": SOURCE}
    assert (
        judged(
            asking(0.0, SOURCE, SOURCE),
            asking(1.0, "http://a.example/1.md", **feed),
        )
        == 1
    )


def test_a_page_that_redirects_announces_on_the_server_that_answered():
    said = {"source": PAGE, "gates": "blocklist: not listed; scope: announced; robots: allowed"}
    led = (
        asking(0.0, PAGE, PAGE, status=301),
        hop(2.0, "http://www.page.example/", PAGE, source=PAGE),
    )
    assert judged(*led, asking(4.0, "http://www.page.example/1.md", **said)) == "holds"


def test_what_a_command_asks_for_by_hand_is_counted_and_not_judged():
    page = asking(1.0, "http://b.example/page")
    assert judged(page, command="fetch") == "holds"
    findings = judged(asking(1.0, "http://me:secret@b.example/page"), command="fetch")
    assert findings == 1, "a password is never sent"


def test_a_run_whose_sources_are_not_known_shows_nothing():
    for facts in (FACTS._replace(declared=""), FACTS._replace(declared="lost")):
        assert judged(asking(1.0, SOURCE, SOURCE), facts=facts) == [
            "names a run whose declared sources are not kept"
        ]
    assert judged(asking(1.0, SOURCE), facts=FACTS._replace(scope="any")) == [
        "names a run that may follow links (WALSH_SCOPE)"
    ]
    assert judged(asking(1.0, SOURCE, run=None)) == ["names no run that is recorded"]
    assert judged(asking(1.0, SOURCE, run=9)) == ["names no run that is recorded"]


# Where the clock of a record was set (decision 37), with rows as crawls write them.

#: The time of day when the machine began to run.
BOOT = 1_000_000.0


def run_of(number, *begun, ahead=0.0):
    """Requests of a run, of a second each, by a clock that is ahead."""
    return [Timed(number, BOOT + at + ahead, 1.0, at + 1.0) for at in begun]


def found(*requests):
    return SetClocks(requests)


def test_nothing_is_uncertain_while_no_clock_is_set():
    clocks = found(*run_of(1, 0, 2, 4), *run_of(2, 10, 12), *run_of(1, 14))
    assert clocks.are_certain(BOOT, BOOT + 14)
    assert not clocks.set_back


@pytest.mark.parametrize("seconds", [-7200.0, -61.0, -2.0, 5.0, 86400.0])
def test_a_clock_that_is_set_during_a_run(seconds):
    clocks = found(*run_of(1, 0, 2, 4), *run_of(1, 6, 8, 10, ahead=seconds))
    assert not clocks.are_certain(BOOT + 5, BOOT + 6 + seconds), "the gap meanwhile"
    assert clocks.are_certain(BOOT - 9e9, BOOT - 8e9)
    assert clocks.set_back == (seconds < 0)


@pytest.mark.parametrize("seconds", [-2.0, 3.0, 7200.0, -7200.0])
def test_a_row_that_alone_was_changed_is_no_clock(seconds):
    forged = run_of(1, 4, ahead=seconds)
    clocks = found(*run_of(1, 0, 2), *forged, *run_of(1, 6, 8), *run_of(2, 10, 12))
    assert clocks.are_certain(BOOT - 9e9, BOOT + 9e9)
    assert not clocks.set_back


def test_a_clock_that_is_set_back_between_two_runs():
    first, second = run_of(1, 0, 2, 3600), run_of(2, 3700, 3702, ahead=-3500.0)
    clocks = found(*first, *second)
    assert not clocks.are_certain(BOOT + 200, BOOT + 201), "this time was twice"
    assert clocks.are_certain(BOOT + 1, BOOT + 2)
    assert clocks.are_certain(BOOT + 3602, BOOT + 3700)
    assert clocks.set_back == 1


def test_a_row_that_waited_for_the_database_is_no_clock():
    """Another process wrote meanwhile."""
    clocks = found(*run_of(1, 0, 2), *run_of(2, 1.5, 3.5), *run_of(1, 3, 5), *run_of(2, 5))
    assert clocks.are_certain(BOOT, BOOT + 9)


def test_a_slow_exchange_that_another_run_overtakes_is_no_clock():
    """Rows are numbered in the order of the requests."""
    slow = Timed(1, BOOT + 1.0, 100.0, 105.0, connect_duration=4.0)
    clocks = found(*run_of(1, 0), slow, *run_of(2, 2, 4, 6), *run_of(1, 106))
    assert clocks.are_certain(BOOT, BOOT + 106)
    assert not clocks.set_back


def test_a_request_without_an_end_says_nothing():
    unknown = Timed(1, BOOT + 4.0, None, 0.0)
    clocks = found(*run_of(1, 0, 2), unknown, unknown, *run_of(1, 6))
    assert clocks.are_certain(BOOT, BOOT + 6)


def test_what_names_no_run_says_nothing():
    clocks = found(*run_of(None, 0, 2), *run_of(None, 4, 6, ahead=-99.0))
    assert clocks.are_certain(BOOT - 99, BOOT + 9)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.floats(0, 9e9), st.floats(0, 9e3), st.floats(0, 9e9)).map(
            lambda row: Timed(*row)
        )
    ),
    st.floats(0, 9e9),
    st.floats(0, 9e9),
)
def test_any_record_has_certain_times_and_others(requests, one, other):
    clocks = found(*requests)
    assert clocks.are_certain(one, other) == clocks.are_certain(other, one)
    if clocks.are_certain(one, other):
        assert clocks.are_certain(one, one)
        assert clocks.are_certain(other, other)


def test_requests_are_read_when_clocks_are_first_asked_about():
    sent = iter(run_of(1, 0, 2, 4))
    clocks = SetClocks(sent)
    assert next(sent).requested_at == BOOT
    assert clocks.are_certain(BOOT, BOOT + 4)
    assert not list(sent)
