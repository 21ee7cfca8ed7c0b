"""Row 4: first requests that are held back, or only seem to be."""

import pytest

from tests.helpers.records import sent
from walsh_scrapy.policy.audit.findings import Findings
from walsh_scrapy.policy.audit.runs import FirstRequestAudit


def logged(number, host, at, **given):
    """A request at a moment that took half a second."""
    given |= {"id": number, "seconds": 0.5, "run": 1}
    return sent(at, f"http://{host}.example/feed", f"{host}.example", **given)


def found(*requests):
    """Judge requests of a run: each with its host, its purpose, and the idle seconds before it."""
    findings, at = Findings(), 0.0
    audit = FirstRequestAudit(findings)
    for number, (host, purpose, idle) in enumerate(requests):
        audit.see(logged(number, host, at + idle, purpose=purpose))
        at += idle + 0.5
    audit.end()
    return [kind.label for kind in findings.found]


LATE = [("a", "target", 0.0), *((host, "robots", 3.0) for host in "bcde")]
AT_ONCE = ("a", "target", 0.1)


@pytest.mark.parametrize(
    ("requests", "kinds"),
    [
        pytest.param([*LATE, AT_ONCE], ["held-back"], id="after-robots-txt"),
        pytest.param(LATE, [], id="everything-waits"),
        pytest.param([*LATE[:4], AT_ONCE], [], id="too-few"),
        pytest.param([*LATE, ("f", "robots", 0.2), AT_ONCE], [], id="one-at-once"),
        pytest.param(
            [(host, "target", idle) for host, _, idle in LATE] + [AT_ONCE], [], id="after-documents"
        ),
    ],
)
def test_each_first_request_is_late_and_others_are_not(requests, kinds):
    assert found(*requests) == kinds
