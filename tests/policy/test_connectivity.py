"""Decision 29: whether a failed connection is the host's failure or this machine's."""

import pytest

from walsh_scrapy.policy.connectivity import MAX_FAILED_HOSTS, Connectivity, proves_network

PROOF = "proof"
DOUBT = "either"
MANY = [f"{number}.example" for number in range(MAX_FAILED_HOSTS)]


@pytest.mark.parametrize(
    ("events", "faults", "is_offline"),
    [
        ([], [], False),
        ([PROOF], [], False),
        ([("a", DOUBT)], ["unknown"], True),
        ([("a", DOUBT), ("a", DOUBT)], ["unknown"] * 2, True),
        ([(host, DOUBT) for host in MANY], ["unknown"] * 4 + ["machine"], True),
        ([PROOF, ("a", DOUBT)], ["host"], False),
        ([("a", DOUBT), PROOF, ("b", DOUBT)], ["unknown", "host"], False),
        ([("a", "host"), ("b", DOUBT)], ["host", "host"], False),
        ([("a", DOUBT), ("b", "host")], ["unknown", "host"], False),
        ([("a", "machine"), ("b", DOUBT)], ["machine", "unknown"], True),
    ],
)
def test_whose_failure_it_is(events, faults, is_offline):
    connectivity = Connectivity()
    found = []
    for event in events:
        if event == PROOF:
            connectivity.prove(1.0)
        else:
            found.append(connectivity.record_failure(*event))
    assert found == faults
    assert connectivity.is_offline is is_offline


def test_a_proof_of_another_run_decides_about_its_source_alone():
    connectivity = Connectivity()
    assert connectivity.record_failure("lame.example", DOUBT, was_proven=True) == "host"
    assert connectivity.record_failure("other.example", DOUBT) == "unknown"
    assert connectivity.is_offline


def test_the_first_proof_is_kept():
    connectivity = Connectivity()
    connectivity.prove(7.0)
    connectivity.prove(9.0)
    assert connectivity.proven_at == 7.0


@pytest.mark.parametrize(
    ("status", "proves"),
    [(200, True), (304, True), (403, True), (404, True), (429, True), (500, True), (407, False)]
    + [(status, False) for status in (502, 503, 504)],
)
def test_which_answers_of_a_proxy_prove_the_network(status, proves):
    assert proves_network(status) is proves
