"""Decision 29: whether a failed connection is the host's failure or this machine's."""

import pytest
from hypothesis import given
from hypothesis.strategies import characters, text

from walsh_scrapy.policy.connectivity import (
    MAX_FAILED_HOSTS,
    Connectivity,
    proves_network,
    proxy_error,
)

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


#: The events of a run through proxies: proxy, host, status, whether the proxy says that it answered
#: itself. The last word is whose the answer is.
PROXY_RUNS = {
    "any other status is the site's": ["p a 200 - site", "p a 404 - site", "p a 429 - site"],
    "an error that nobody claims": ["p a 502 - gateway", "p a 503 - gateway", "p a 504 - gateway"],
    "the same through a proxy that works": ["p a 200 - site", "p b 503 - gateway"],
    "an unreached host is asked once more": ["p a 503 own unknown", "p a 503 own unreached"],
    "through a proxy that works it is not": ["p a 200 - site", "p b 503 own unreached"],
    "own words beside another status say nothing": ["p a 500 own site", "p a 403 own site"],
    "five hosts": [*(f"p {host} 503 - gateway" for host in "abcd"), "p e 502 - machine"],
    "five hosts in the proxy's words": [
        *(f"p {host} 503 own unknown" for host in "abcd"),
        "p e 504 own machine",
        "p f 503 - machine",
    ],
    "hosts count, and not requests": ["p a 503 - gateway"] * 9,
    "another status of that proxy": [
        *(f"p {host} 503 - gateway" for host in "abcd"),
        "p f 403 - site",
        "p e 503 - gateway",
    ],
    "another proxy": [
        "q z 200 - site",
        *(f"p {host} 503 - gateway" for host in "abcd"),
        "p e 503 - machine",
    ],
}


@pytest.mark.parametrize("events", PROXY_RUNS.values(), ids=PROXY_RUNS)
def test_whose_answer_came_through_a_proxy(events):
    connectivity = Connectivity()
    for event in events:
        proxy, host, status, own, expected = event.split()
        answer = connectivity.record_proxy_answer(
            proxy, host, int(status), 1.0, is_own=own == "own", is_refusal=False
        )
        assert answer == expected, event


def test_an_answer_with_a_retry_after_is_the_sites():
    connectivity = Connectivity()
    for host in MANY:
        answer = connectivity.record_proxy_answer("p", host, 503, 1.0, is_own=True, is_refusal=True)
        assert answer == "site"
    assert connectivity.proven_at is None


def test_tunnels_and_answers_of_a_proxy_count_together():
    connectivity = Connectivity()
    for host in MANY[:2]:
        assert connectivity.record_failure(host, DOUBT) == "unknown"
    answers = [
        connectivity.record_proxy_answer("p", host, 503, 1.0, is_own=False, is_refusal=False)
        for host in MANY[2:]
    ]
    assert answers == ["gateway", "gateway", "machine"]


def test_a_proxy_that_opened_a_tunnel_reaches_hosts():
    connectivity = Connectivity()
    connectivity.prove(1.0, "p")
    answers = [
        connectivity.record_proxy_answer("p", host, 503, 1.0, is_own=False, is_refusal=False)
        for host in MANY
    ]
    assert answers == ["gateway"] * 5
    assert not connectivity.is_doubtful(MANY[0])


def test_which_hosts_are_in_doubt():
    connectivity = Connectivity()
    connectivity.record_proxy_answer("p", "a", 503, 1.0, is_own=False, is_refusal=False)
    assert connectivity.is_doubtful("a")
    assert not connectivity.is_doubtful("b")
    assert not connectivity.is_offline, "one such host is the site's"
    connectivity.prove(2.0, "p")
    assert not connectivity.is_doubtful("a")


@pytest.mark.parametrize(
    ("fields", "is_own"),
    [
        ([], False),
        ([("Via", "1.1 gate (squid)"), ("X-Cache", "MISS from gate")], False),
        ([("X-Squid-Error", "ERR_DNS_FAIL 0")], True),
        ([("x-squid-error", "ERR_CONNECT_FAIL 111")], True),
        ([("Proxy-Agent", "proxy.py v2.4.10")], True),
        ([("X-Proxy-Error", "timeout")], True),
        ([("Proxy-Status", "gate; error=dns_error")], True),
        ([("proxy-status", '"the gate"; error=connection_timeout; details="x"')], True),
        ([("Proxy-Status", "cdn; error=dns_error, gate")], False),
        ([("Proxy-Status", "cdn, gate; error=destination_unavailable")], True),
        ([("Proxy-Status", "cdn"), ("Proxy-Status", "gate; error=dns_error")], True),
        ([("Proxy-Status", "gate; received-status=503")], False),
        ([("Proxy-Status", "gate; error=http_response_incomplete; received-status=503")], False),
        ([("Proxy-Status", "gate")], False),
        ([("Proxy-Status", "")], False),
        ([("Proxy-Status", "error=dns_error; ;")], False),
    ],
)
def test_which_fields_say_that_the_proxy_answered(fields, is_own):
    error = proxy_error(fields)
    assert (error is not None) is is_own
    assert error is None or fields[-1][1] in error


@given(text(characters(max_codepoint=255)))
def test_no_proxy_status_is_an_error(value):
    assert proxy_error([("Proxy-Status", value)]) in (None, f"Proxy-Status: {value}")


def test_a_long_proxy_status_is_read_in_linear_time(linear):
    assert proxy_error([("Proxy-Status", "a;b=(" * 20_000)]) is None
    assert proxy_error([("Proxy-Status", "a; error=b, " * 10_000 + "c")]) is None
