"""Decision 29: a machine that is offline fails no source, and a dead name server no machine."""

import pytest

from walsh_scrapy.policy.reasons import Connectivity

WORKED = None


@pytest.mark.parametrize(
    ("events", "found", "offline"),
    [
        ([], [], False),
        ([WORKED], [], False),
        (["a"], ["unknown"], True),
        (["a", "a", "a", "a"], ["unknown"] * 4, True),  # one host proves nothing
        (["a", "b", "a", "b"], ["unknown"] * 4, True),
        ([*"abcde"], [*["unknown"] * 4, "machine"], True),
        ([*"abcdea"], [*["unknown"] * 4, "machine", "machine"], True),
        ([WORKED, "a", "b", "c"], ["host"] * 3, False),
        (["a", "b", WORKED, "c", "a"], ["unknown", "unknown", "host", "host"], False),
    ],
)
def test_whose_failure_it_is(events, found, offline):
    connectivity = Connectivity()
    verdicts = []
    for event in events:
        if event is WORKED:
            connectivity.record_success()
        else:
            verdicts.append(connectivity.fault_of(event))
    assert verdicts == found
    assert connectivity.offline is offline
