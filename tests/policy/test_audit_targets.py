"""The audit of row 6: what declares a request, and what leads to it (decisions 16, 21 and 39)."""

import pytest

from tests.helpers.records import sent
from walsh_scrapy.identity import UA_TOKEN
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.record import DAY, Basis, Documents, RunFacts, RunTerms
from walsh_scrapy.policy.audit.targets import Targets

LIST, SCHEMA = "http://operator.example/list.json", "http://operator.example/schema.json"
SOURCE, PAGE = "http://a.example/feed", "http://page.example/"
DECLARED = f"feed {SOURCE}\nllms {PAGE}".encode()
FACTS = RunFacts("", UA_TOKEN, LIST, SCHEMA, "host", "allow", "declared", "sources")


def judged(*requests, since=0.0, moved=None, **terms):
    """What row 6 finds: the number of breaches, or what is not shown, or "holds"."""
    findings = Findings()
    run = RunTerms(**{"begun": 0.0, "ended": None, "facts": FACTS} | terms)
    documents = Documents({"sources": DECLARED}.get)
    runs = {1: run, 2: run}
    audit = Targets(
        findings, Basis(runs, (), frozenset(), documents, since=since, moved=moved or {})
    )
    for each in requests:
        audit.see(each)
    unshown = [reason for _, reason in findings.unshown]
    return findings.broken.total() or unshown or "holds"


def asked(at, url, source=None, **columns):
    given = {"run": 1, "source": source, "gates": "blocklist: not listed; robots: allowed"}
    return sent(at, url, **given | columns)


def hop(at, url, by, **columns):
    return asked(at, url, redirected_by=by, **columns)


@pytest.mark.parametrize(
    "request_",
    [
        asked(1.0, SOURCE, SOURCE),
        asked(1.0, SOURCE),
        asked(1.0, PAGE, PAGE),
        asked(1.0, f"{PAGE}llms.txt", PAGE),
        asked(1.0, "http://b.example/robots.txt", purpose="robots"),
        asked(1.0, LIST, purpose="blocklist"),
        asked(1.0, SCHEMA, purpose="blocklist"),
    ],
)
def test_what_is_declared_and_what_the_rules_name_holds(request_):
    assert judged(request_) == "holds"


@pytest.mark.parametrize(
    "request_",
    [
        asked(1.0, "http://a.example/1.png", SOURCE),
        asked(1.0, "http://a.example/1.png"),
        asked(1.0, "http://a.example/llms.txt", SOURCE),
        asked(1.0, f"{PAGE}about", PAGE),
        asked(1.0, "http://b.example/feed", "http://b.example/feed"),
        asked(1.0, "http://a.example/page", purpose="robots"),
        asked(1.0, "http://a.example/page", purpose="blocklist"),
        hop(1.0, "http://a.example/page", SOURCE, source=SOURCE),
    ],
)
def test_what_no_source_declares_is_a_breach(request_):
    assert judged(request_) == 1
    assert judged(asked(0.5, SOURCE, SOURCE), request_) == 1, "also after the source itself"


def test_a_redirect_belongs_to_what_redirected_in_the_same_run():
    first = asked(1.0, SOURCE, SOURCE, status=302)
    second = hop(3.0, "http://b.example/1", SOURCE, source=SOURCE, status=301)
    third = hop(5.0, "http://c.example/2", "http://b.example/1", source=SOURCE)
    assert judged(first, second, third) == "holds"
    assert judged(first, third) == 1, "what redirected there is not recorded"
    assert judged(first._replace(status=200), second) == 1
    assert judged(first._replace(status=304), second) == 1
    assert judged(first, second._replace(run=2)) == 1
    early = judged(second, since=0.5)
    assert early == ["names a redirect that may be older than the record"]


@pytest.mark.parametrize(
    ("url", "by_gate", "found"),
    [
        ("http://10.1.2.3/feed", "", 1),
        ("http://wiki.internal/feed", "", 1),
        ("http://10.1.2.3/feed", "; publicweb: from a private host", "holds"),
        ("http://93.184.215.14/feed", "", "holds"),
    ],
)
def test_a_public_host_may_not_lead_to_a_private_one(url, by_gate, found):
    first = asked(1.0, SOURCE, SOURCE, status=302)
    second = hop(3.0, url, SOURCE, source=SOURCE)
    assert judged(first, second._replace(gates=second.gates + by_gate)) == found


def test_a_source_that_moved_is_asked_for_at_its_new_address():
    new = "http://new.example/feed"
    direct = asked(DAY, new, SOURCE)
    told = direct._replace(gates="blocklist: not listed; scope: moved; robots: allowed")
    assert judged(direct, moved={SOURCE: new}) == "holds"
    seen = asked(1.0, SOURCE, SOURCE, status=301), hop(3.0, new, SOURCE, source=SOURCE)
    assert judged(*seen, direct) == "holds"
    assert judged(direct) == 1
    assert judged(told) == ["was asked for where a source had moved to, which is not recorded"]
    page = asked(DAY, "http://new.example/llms.txt", PAGE)
    assert judged(page, moved={PAGE: "http://new.example/"}) == "holds"


def test_a_page_without_a_feed_may_announce_three_documents_on_its_own_server():
    page = asked(0.0, PAGE, PAGE)
    said = {"source": PAGE, "gates": "blocklist: not listed; scope: announced; robots: allowed"}
    documents = [asked(float(number), f"{PAGE}{number}.md", **said) for number in range(1, 5)]
    assert judged(page, *documents[:3]) == "holds"
    assert judged(page, *documents[:3], *documents[:3]) == "holds", "the same ones again"
    assert judged(page, *documents) == 1, "one too many"
    assert judged(*documents[:3]) == 3, "the page was not asked"
    assert judged(page, documents[0]._replace(gates="blocklist: not listed")) == 1
    assert judged(page, asked(1.0, "http://b.example/1.md", **said)) == 1, "another server"
    feed = said | {"source": SOURCE}
    assert judged(asked(0.0, SOURCE, SOURCE), asked(1.0, "http://a.example/1.md", **feed)) == 1


def test_a_page_that_redirects_announces_on_the_server_that_answered():
    said = {"source": PAGE, "gates": "blocklist: not listed; scope: announced; robots: allowed"}
    led = (
        asked(0.0, PAGE, PAGE, status=301),
        hop(2.0, "http://www.page.example/", PAGE, source=PAGE),
    )
    assert judged(*led, asked(4.0, "http://www.page.example/1.md", **said)) == "holds"


def test_what_a_command_asks_for_by_hand_is_counted_and_not_judged():
    page = asked(1.0, "http://b.example/page")
    assert judged(page, command="fetch") == "holds"
    findings = judged(asked(1.0, "http://me:secret@b.example/page"), command="fetch")
    assert findings == 1, "a password is never sent"


def test_a_run_whose_sources_are_not_known_shows_nothing():
    for facts in (FACTS._replace(declared=""), FACTS._replace(declared="lost")):
        assert judged(asked(1.0, SOURCE, SOURCE), facts=facts) == [
            "names a run whose declared sources are not kept"
        ]
    assert judged(asked(1.0, SOURCE), facts=FACTS._replace(scope="any")) == [
        "names a run that may follow links (WALSH_SCOPE)"
    ]
    assert judged(asked(1.0, SOURCE, run=None)) == ["names no run that is recorded"]
    assert judged(asked(1.0, SOURCE, run=9)) == ["names no run that is recorded"]
