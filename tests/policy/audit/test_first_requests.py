"""Row 4: a run that holds back first requests to hosts, and others that only seem to."""

import pytest

from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.firstrequests import FirstRequestAudit
from walsh_scrapy.policy.audit.record import LoggedRequest


def found(*requests):
    """Judge requests of a run: each with its host, its status, and the idle seconds before it."""
    findings, at = Findings(), 0.0
    audit = FirstRequestAudit(findings)
    for number, (host, status, idle) in enumerate(requests):
        given = {"id": number, "sent_at": at + idle, "seconds": 0.5, "status": status, "run": 1}
        url = f"http://{host}.example/feed"
        row = dict.fromkeys(LoggedRequest._fields) | given | {"purpose": "target", "url": url}
        audit.see(LoggedRequest(**row))
        at += idle + 0.5
    audit.end()
    return [kind.label for kind in findings.found]


CHAIN = [("a", 302, 0.0), *((host, 302, 3.0) for host in "bcde")]


@pytest.mark.parametrize(
    ("requests", "kinds"),
    [
        pytest.param([*CHAIN, ("a", 200, 0.1)], ["held-back"], id="after-redirects"),
        pytest.param(CHAIN, [], id="everything-waits"),
        pytest.param([*CHAIN[:4], ("a", 200, 0.1)], [], id="too-few"),
        pytest.param([*CHAIN, ("f", 200, 0.2), ("a", 200, 0.1)], [], id="one-at-once"),
        pytest.param(
            [(host, 200, idle) for host, _, idle in CHAIN] + [("a", 200, 0.1)],
            [],
            id="after-documents",
        ),
    ],
)
def test_each_first_request_is_late_and_others_are_not(requests, kinds):
    assert found(*requests) == kinds
