"""Row 3: which list was in force, and when it was looked for: within its refresh (R3)."""

import pytest

from tests.helpers.records import sent
from tests.helpers.sites import blocklist
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.permission import ListOfRequests
from walsh_scrapy.policy.audit.record import DAY, Basis, Documents, RunFacts, RunTerms
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.state.documents import hash_of

HOUR = 3600.0
ROOT = "https://operator.example"
LIST = f"{ROOT}/list.json"
URLS = {"blocklist_url": LIST, "blocklist_schema_url": f"{ROOT}/schema.json"}
FACTS = RunFacts(**dict.fromkeys(RunFacts._fields, "") | URLS)


def a_list(*domains, refresh="PT6H"):
    return blocklist(*domains, refresh=refresh).content()


EARLIER, LATER = a_list("out.example"), a_list("out.example", "a.example")
COPIES = {hash_of(body): body for body in (EARLIER, LATER)}
OLD, NEW = COPIES


def row(at, run, looked, **columns):
    """A request by a list that was looked for at a moment, as the record says."""
    given = {"gates": "blocklist: not listed; robots: allowed", "pause": 1.0, "blocklist": OLD}
    return sent(at, run=run, blocklist_at=looked, **given | columns)


def the_list(at, run, status=200, **columns):
    """A request for the list; its answer comes a second later."""
    asked = {"host": "operator.example", "url": LIST, "purpose": "blocklist", "gates": ""}
    return row(at, run, None, status=status, blocklist=None, **asked | columns)


def audited(*rows, begun=None, facts=FACTS):
    """Return the findings; runs begin a second before their first row, or as ``begun`` says."""
    first = {}
    for each in sorted(rows, key=lambda row: row.sent_at):
        first.setdefault(each.run, each.sent_at - 1.0)
    runs = {run: RunTerms(at, None, facts) for run, at in (first | (begun or {})).items()}
    since = min(each.sent_at for each in rows)
    hosts = frozenset({"operator.example"})
    basis = Basis(runs, (), hosts, Documents(COPIES.get), since=since)
    findings = Findings()
    audit = ListOfRequests(findings, basis)
    for each in sorted(rows, key=lambda row: row.sent_at):
        audit.see(each)
    audit.end()
    return findings


def kinds(*rows, **options):
    return {kind.label: count for kind, count in audited(*rows, **options).broken.items()}


FIRST = [the_list(0.0, 1), row(2.0, 1, 1.0)]
NEXT = DAY + 1.0


def test_a_list_that_is_never_refreshed_is_a_breach_of_each_run_that_did_not_look():
    second = [row(DAY, 2, 1.0), row(DAY + 9.0, 2, 1.0)]
    third = [the_list(2 * DAY, 3, 304), row(2 * DAY + 2.0, 3, 2 * DAY + 1.0)]
    assert kinds(*FIRST) == {}
    assert kinds(*FIRST, *second) == {"stale-list": 2}
    assert kinds(*FIRST, *second, *third) == {"stale-list": 2}
    found = audited(*FIRST, *second)
    (worst,) = [each.what for each in found.found.values()]
    assert worst == "run 2 should have asked for its list 16 h 59 min before"
    assert found.shown["3"] == 1


def test_a_run_that_only_says_that_it_looked_is_a_breach():
    """A moment counts if a request for the list is recorded that may have brought it."""
    assert kinds(*FIRST, row(DAY, 2, DAY - 1.0)) == {"stale-list": 1}
    assert kinds(*FIRST, row(DAY, 2, None)) == {"stale-list": 1}
    assert kinds(*FIRST, row(4000.0, 2, 4000.0)) == {"stale-list": 1}, "an hour after the answer"
    assert kinds(*FIRST, row(3500.0, 2, 3500.0)) == {}, "its check may have taken so long"


def test_a_long_run_has_to_look_again():
    run = [the_list(0.0, 1), *(row(hour * HOUR, 1, 1.0) for hour in range(1, 14))]
    assert kinds(*run) == {"stale-list": 5}, "from the second request after seven hours on"
    again = [row(hour * HOUR, 1, 6.5 * HOUR + 1.0) for hour in range(7, 14)]
    assert kinds(*run[:7], the_list(6.5 * HOUR, 1, 304), *again) == {}
    other = [the_list(6.5 * HOUR, 2, 304), row(6.6 * HOUR, 2, 6.5 * HOUR + 1.0)]
    assert kinds(*run, *other) == {"stale-list": 5}, "what another run fetched is not in its memory"


def test_a_host_that_was_opted_out_before_a_run_that_did_not_look_is_a_breach():
    newer = [the_list(DAY, 2), row(DAY + 2, 2, NEXT, **new())]
    long = [row(hour * HOUR, 1, 1.0) for hour in range(6, 26, 6)]
    late = row(25 * HOUR, 1, 1.0)
    assert kinds(*FIRST, *newer, *long, late) == {"stale-list": 3, "listed": 1}
    other = late._replace(url="http://b.example/", host="b.example")
    below = late._replace(url="http://x.a.example/", host="x.a.example")
    assert kinds(*FIRST, *newer, *long, other) == {"stale-list": 3}
    assert kinds(*FIRST, *newer, *long, below) == {"stale-list": 3, "listed-above": 1}


def new():
    return {"blocklist": NEW, "url": "http://b.example/feed", "host": "b.example"}


def test_a_faulty_reader_of_the_list_cannot_hide_its_fault(monkeypatch):
    """Decision 35: `json` and a few plain lines read it too."""
    listed = [the_list(0.0, 1), row(2.0, 1, 1.0, blocklist=NEW)]
    below = row(4.0, 1, 1.0, blocklist=NEW, url="http://x.a.example/", host="x.a.example")
    found = {"listed": 1, "listed-above": 1}
    assert kinds(*listed, below) == found
    monkeypatch.setattr(Blocklist, "blocks", lambda _list, _url: None)
    assert kinds(*listed, below) == found


def test_a_run_that_has_no_list_and_never_asked_for_one_is_a_breach():
    first = [the_list(0.0, 1, 404), row(2.0, 1, 1.0, blocklist=None)]
    assert kinds(*first) == {}
    for looked in (None, 1.0):
        late = row(3 * DAY, 2, looked, blocklist=None)
        assert kinds(*first, late) == {"stale-list": 1}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([row(5 * HOUR, 2, 1.0), row(5.5 * HOUR, 2, 1.0)], id="within-the-refresh"),
        pytest.param([the_list(DAY, 2, 304), row(DAY + 2.0, 2, NEXT)], id="revalidated"),
        pytest.param(
            [
                the_list(DAY, 2, 301),
                the_list(DAY + 1.0, 2, 200, host="m.example", url="https://m.example/list"),
                row(DAY + 3.0, 2, DAY + 2.0),
            ],
            id="redirected",
        ),
        pytest.param(
            [
                the_list(DAY, 2, None, hold=60.0),
                *(row(DAY + n * HOUR + 1.0, 2, DAY + n * HOUR) for n in range(1, 72)),
            ],
            id="its-server-is-down-and-put-off-for-the-rest-of-the-run",
        ),
        pytest.param(
            [
                the_list(DAY, 2, 503, hold=1e6),
                row(DAY + 2.0, 2, NEXT),
                row(1.9 * DAY, 3, 1.9 * DAY - 1.0),
            ],
            id="its-server-is-on-hold-for-a-day-at-most",
        ),
        pytest.param(
            [
                row(DAY, 2, 1.0, status=503, purpose="robots", url=f"{ROOT}/robots.txt"),
                row(DAY + 2.0, 2, NEXT),
            ],
            id="its-robots-txt-does-not-answer",
        ),
        pytest.param(
            [
                the_list(DAY, 2, 304, pause=20 * HOUR),
                row(DAY + 3.0, 2, NEXT),
                row(DAY + 19 * HOUR, 3, DAY + 18.9 * HOUR),
            ],
            id="its-crawl-delay-is-longer-than-its-refresh",
        ),
        pytest.param(
            [the_list(DAY, 2), row(DAY + 2.0, 2, NEXT), row(DAY + 30 * HOUR, 2, NEXT)],
            id="one-request-was-out-while-the-machine-was-suspended",
        ),
    ],
)
def test_a_list_that_was_tried_is_no_breach(rows):
    assert kinds(*FIRST, *rows) == {}


def test_a_server_that_is_down_has_to_be_tried_again_by_later_runs():
    first = [*FIRST, the_list(DAY, 2, None), row(DAY + 2.0, 2, NEXT)]
    assert kinds(*first, row(3 * DAY, 3, 3 * DAY - 1.0)) == {"stale-list": 1}
    again = [the_list(3 * DAY, 3, None), row(3 * DAY + 2.0, 3, 3 * DAY + 1.0)]
    assert kinds(*first, *again) == {}


def test_a_bot_without_a_published_list_needs_none():
    """The list that an operator keeps in a file is read at each start."""
    facts = FACTS._replace(blocklist_url="", blocklist_schema_url="")
    rows = [row(day * DAY, day, None, blocklist=None) for day in range(1, 5)]
    assert kinds(*rows, facts=facts) == {}


def test_what_was_fetched_before_the_record_begins_is_not_known():
    """Older rows were deleted. A request that is later than the refresh since then is a breach."""
    rows = [row(0.0, 1, -99.0), row(HOUR, 1, -99.0)]
    findings = audited(*rows, begun={1: -9.0})
    assert findings.found == {}
    assert findings.numbers["3"]["list_of_before_the_record"] == 2
    assert kinds(*rows, row(3 * DAY, 2, -99.0)) == {"stale-list": 1}


def test_the_schema_alone_is_no_look():
    rows = [*FIRST, the_list(DAY, 2, url=FACTS.blocklist_schema_url)]
    assert kinds(*rows, row(DAY + 2.0, 2, NEXT)) == {"stale-list": 1}
