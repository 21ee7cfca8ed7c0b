"""A polite log passes; each violation gives a sentence with rule, host and numbers."""

import itertools
import math
from dataclasses import replace
from email.utils import formatdate

import pytest

from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.testing.checks import PRECISIONS
from walsh_scrapy.testing.hit import ConnectionRecord, Hit, most_at_once
from walsh_scrapy.testing.politeness import assert_polite, violations

WALL = 1_767_225_600.0
ROBOTS = "/robots.txt"


def hit(host, path, at, took=0.1, status=200, headers=(), method="GET", port=80, **answer):
    """Return an exchange from `at` to `at + took`."""
    return Hit(
        started=at,
        ended=at + took,
        wall=WALL + at,
        method=method,
        scheme="http",
        host=host,
        port=port,
        path=path,
        headers=(("Host", host), ("User-Agent", USER_AGENT), *headers),
        status=status,
        answer=tuple((name.replace("_", "-"), value) for name, value in answer.items()),
        complete=True,
    )


def log(*hits):
    """Return robots.txt of a.example and of b.example, and then the hits."""
    return [hit("a.example", ROBOTS, 0), hit("b.example", ROBOTS, 0.2), *hits]


def rules(hits, **terms):
    """Return which rules are broken."""
    return [sentence[:2] for sentence in violations(hits, **terms)]


POLITE = log(
    hit("a.example", "/1", 1.2),
    hit("b.example", "/1", 1.35),
    hit("a.example", "/2", 2.4, status=429, Retry_After="3"),
    hit("b.example", "/2", 2.6),
    hit("a.example", "/2", 5.6),
)


class TestPolite:
    def test_a_polite_log_passes(self):
        assert violations(POLITE) == []
        assert_polite(POLITE)

    def test_the_order_of_the_log_does_not_matter(self):
        assert violations(reversed(POLITE)) == []

    def test_exactly_the_interval_is_enough(self):
        assert violations([hit("a.example", ROBOTS, 0, 1), hit("a.example", "/", 2)]) == []

    def test_an_unknown_term_is_refused(self):
        with pytest.raises(TypeError, match="intervall"):
            violations([], intervall=2)

    def test_an_empty_log_proves_nothing(self):
        assert violations([]) == []
        with pytest.raises(AssertionError, match="empty"):
            assert_polite([])

    def test_the_error_lists_every_violation(self):
        hits = log(hit("a.example", "/", 0.4), hit("c.example", "/x", 0.6))
        with pytest.raises(AssertionError) as error:
            assert_polite(hits)
        head, scope, pacing = str(error.value).splitlines()
        assert head == "2 violations:"
        assert scope.startswith("- R2: c.example: #4 ")
        assert pacing.startswith("- R4: a.example: ")
        assert all(value in pacing for value in ("0.300 s", "#1", "#3"))


class TestR1Identity:
    @pytest.mark.parametrize(
        "sent", [[], ["Scrapy/2.19"], [USER_AGENT + " "], [USER_AGENT, USER_AGENT]]
    )
    def test_another_user_agent(self, sent):
        headers = tuple(("User-Agent", value) for value in sent)
        other = Hit(0, 0.1, WALL, "GET", "http", "a.example", 80, ROBOTS, headers)
        assert rules([other]) == ["R1"]

    @pytest.mark.parametrize("name", ["Cookie", "referer", "AUTHORIZATION", "Proxy-Authorization"])
    def test_a_private_header(self, name):
        (sentence,) = violations(log(hit("a.example", "/", 2, headers=((name, ""),))))
        assert sentence.startswith("R1: a.example: #3 ")
        assert name.lower() in sentence.lower()


class TestR2Robots:
    def test_a_page_before_its_robots(self):
        assert rules([hit("a.example", "/", 0), hit("a.example", ROBOTS, 2)]) == ["R2"]

    def test_a_page_before_the_end_of_its_robots(self):
        hits = [hit("a.example", ROBOTS, 0, 5), hit("a.example", "/", 2)]
        sentence, _ = violations(hits)
        assert sentence.startswith("R2: a.example: #2 ")
        assert "#1 GET http://a.example/robots.txt" in sentence

    def test_each_port_has_its_own(self):
        assert rules(log(hit("a.example", "/", 2, port=8080))) == ["R2"]

    def test_one_sentence_an_origin(self):
        assert rules([hit("c.example", "/", 0), hit("c.example", "/2", 2)]) == ["R2"]

    def test_a_later_run_may_have_a_copy_of_robots_txt(self):
        assert rules([hit("a.example", "/", 0)], robots_first=False) == []

    def test_the_operators_own_documents_are_exempt(self):
        hits = [hit("op.example", "/blocklist.json", 0), hit("op.example", "/feed", 2)]
        exempt = ["http://op.example/blocklist.json"]
        assert rules(hits, robots_exempt=exempt) == ["R2"]
        assert rules(hits[:1], robots_exempt=exempt) == []

    def test_a_redirected_robots_may_lead_elsewhere(self):
        hops = [
            hit("c.example", ROBOTS, 0, status=301, Location="http://d.example/r1"),
            hit("d.example", "/r1", 1, status=302, Location="r2"),
            hit("d.example", "/r2", 3),
        ]
        assert rules(hops) == []
        assert rules([*hops, hit("d.example", "/page", 5)]) == ["R2"]

    @pytest.mark.parametrize(("ttl", "broken"), [(0, []), (9, []), (86_400, ["R2"])])
    def test_a_cached_robots_txt_is_not_requested_again(self, ttl, broken):
        hits = [hit("a.example", ROBOTS, 0, status=404), hit("a.example", ROBOTS, 10)]
        assert rules(hits, robots_ttl=ttl) == broken

    @pytest.mark.parametrize("status", [0, 429, 503])
    def test_a_robots_txt_without_an_answer_is_requested_again(self, status):
        hits = [hit("a.example", ROBOTS, 0, status=status), hit("a.example", ROBOTS, 10)]
        assert rules(hits, robots_ttl=86_400) == []

    @pytest.mark.parametrize(("status", "broken"), [(0, []), (503, []), (404, ["R2"])])
    def test_a_redirected_robots_is_as_good_as_its_target(self, status, broken):
        hop = hit("b.example", "/rules", 2, status=status)
        hits = [hit("a.example", ROBOTS, at, status=302, Location=hop.url) for at in (0, 10)]
        assert rules([hits[0], hop, hits[1]], robots_ttl=86_400) == broken
        assert rules(hits, robots_ttl=86_400) == []
        later = hit("b.example", "/rules", 12, status=status)
        assert rules([*hits, later], robots_ttl=86_400) == [], "the first one was cut off by a kill"

    def test_denied_urls(self):
        denied = ["http://a.example/private/", "http://b.example/"]
        hits = log(hit("a.example", "/private/x", 2), hit("a.example", "/public", 4))
        assert rules(hits, denied=denied) == ["R2"]
        assert rules(hits, denied=["http://a.example/%70ublic$"]) == ["R2"]
        assert rules(hits, denied=["http://a.example/private$"]) == []


class TestR3Blocklist:
    @pytest.mark.parametrize(
        ("host", "blocked"),
        [
            ("example.com", True),
            ("www.example.com", True),
            ("a.b.example.com", True),
            ("notexample.com", False),
            ("com", False),
            ("example.com.evil.example", False),
        ],
    )
    def test_domain_and_subdomains(self, host, blocked):
        hits = [hit(host, ROBOTS, 0)]
        assert rules(hits, blocked=["Example.COM."]) == ["R3"] * blocked

    @pytest.mark.parametrize(("ttl", "broken"), [(0, []), (9, []), (21_600, ["R3"])])
    def test_a_cached_blocklist_is_not_requested_again(self, ttl, broken):
        hits = log(hit("a.example", "/list", 2), hit("a.example", "/list", 12))
        exempt = ["http://a.example/list"]
        assert rules(hits, robots_exempt=exempt, documents_ttl=ttl) == broken

    def test_an_address_is_no_subdomain(self):
        hits = log(hit("127.2.0.1", "/", 3), hit("127.2.0.1", "/a", 6))
        assert rules(hits, robots_first=False, blocked=["2.0.1", "0.1"]) == []
        assert "R3" in rules(hits, robots_first=False, blocked=["127.2.0.1"])


class TestR4Pacing:
    def test_ports_share_the_spacing_of_their_host(self):
        assert rules(log(hit("a.example", ROBOTS, 0.5, port=8080))) == ["R4"]

    def test_another_interval(self):
        assert rules(log(hit("a.example", "/", 1.5)), interval=2) == ["R4"]

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_in_doubt_the_crawler_is_right(self, precision):
        """All witnesses judge by these rules: the log, and the conformance test."""
        for later, is_short in ((-0.01, True), (0.01, False)):
            pause = 4 - precision.tolerance + later
            hits = [hit("a.example", "/1", 0.0, took=0.0), hit("a.example", "/2", pause, took=0.0)]
            terms = {"interval": 4.0, "robots_first": False, "precision": precision}
            assert (rules(hits, **terms) == ["R4"]) == is_short
            refused = [replace(hits[0], status=503, answer=(("Retry-After", "4"),)), hits[1]]
            assert (rules(refused, **terms | {"interval": 0.0}) == ["R5"]) == is_short

    def test_crawl_delay_holds_from_robots_on(self):
        hits = log(hit("a.example", "/", 1.5), hit("b.example", "/", 2.5))
        assert rules(hits, crawl_delays={"a.example": 2, "b.example": 2}) == ["R4"]

    def test_a_crawl_delay_does_not_count_before_robots_txt_was_read(self):
        retried = [
            hit("a.example", ROBOTS, 0, status=503),
            hit("a.example", ROBOTS, 2),
            hit("a.example", "/", 12.1),
            hit("a.example", ROBOTS, 14.2),
        ]
        assert rules(retried[:3], crawl_delays={"a.example": 10}) == []
        assert rules(retried, crawl_delays={"a.example": 10}) == ["R4"]

    @pytest.mark.parametrize("path", [ROBOTS, "/rules"])
    def test_a_file_for_another_host_tells_no_crawl_delay(self, path):
        hits = [
            hit("a.example", ROBOTS, 0, status=302, Location=f"http://b.example{path}"),
            hit("b.example", path, 2),
            hit("b.example", ROBOTS, 4),
            hit("b.example", "/", 6),
        ]
        assert rules(hits[:3], crawl_delays={"b.example": 5}) == []
        assert rules(hits, crawl_delays={"b.example": 5}) == ["R4"]
        assert rules([*hits[:2], hit("a.example", "/", 4)], crawl_delays={"a.example": 5}) == ["R4"]

    def test_two_at_once(self):
        (sentence,) = violations(log(hit("a.example", "/", 2, 3), hit("b.example", "/", 4)))
        assert all(value in sentence for value in ("#4", "1.000 s", "#3"))

    def test_without_serial_a_host_still_gets_one_request_at_a_time(self):
        hits = log(hit("a.example", "/", 2, 3), hit("b.example", "/", 4))
        assert rules(hits, serial=False) == []
        hits = log(hit("a.example", "/", 2, 3), hit("a.example", "/2", 4))
        assert rules(hits, serial=False) == rules(hits) == ["R4"]

    def test_an_unfinished_exchange_overlaps_all_that_follow(self):
        hits = [hit("a.example", ROBOTS, 0, math.inf), hit("b.example", ROBOTS, 5)]
        assert rules(hits) == ["R4"]

    def test_pace_by_domain(self):
        hits = [hit("x.d.example", ROBOTS, 0), hit("y.d.example", ROBOTS, 0.5)]
        assert rules(hits) == []
        assert rules(hits, pace_by=lambda host: host.partition(".")[2]) == ["R4"]

    def test_an_open_tunnel_is_no_exchange_of_its_own(self):
        def tunnel(at, status):
            return Hit(at, at + 0.1, WALL, "CONNECT", "https", "a.example", 443, "", status=status)

        assert rules([tunnel(0, 200), tunnel(0.2, 200)]) == []
        assert rules([tunnel(0, 501), tunnel(0.2, 501)]) == ["R4"]

    @pytest.mark.parametrize(
        ("spans", "most"),
        [([], 0), ([(0, 1), (1, 1)], 1), ([(0, 3), (1, 1), (1.5, 1)], 3), ([(0, math.inf)], 1)],
    )
    def test_most_at_once(self, spans, most):
        assert most_at_once((at, at + took) for at, took in spans) == most


class TestR5Backoff:
    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        "value",
        [
            "10",
            formatdate(WALL + 12.1, usegmt=True),
            "Thursday, 01-Jan-26 00:00:13 GMT",
            "Thu Jan  1 00:00:13 2026",
        ],
    )
    @pytest.mark.parametrize(("at", "broken"), [(11.9, ["R5"]), (13.1, [])])
    def test_retry_after(self, status, value, at, broken):
        busy = hit("a.example", "/", 2, status=status, Retry_After=value)
        assert rules(log(busy, hit("a.example", "/other", at))) == broken

    def test_every_hit_within_the_hold_is_reported(self):
        busy = hit("a.example", "/", 2, status=429, Retry_After="60")
        later = [hit("a.example", "/", at) for at in (10, 20, 70)]
        first, second = violations(log(busy, *later))
        assert "52.100 s" in first
        assert "#3" in first
        assert "#5" in second

    def test_a_shorter_retry_after_does_not_end_the_hold(self):
        hits = log(
            hit("a.example", "/", 2, status=429, Retry_After="60"),
            hit("a.example", "/", 10, status=429, Retry_After="1"),
            hit("a.example", "/", 20),
        )
        assert rules(hits) == ["R5", "R5"]

    @pytest.mark.parametrize(
        ("status", "value"), [(200, "60"), (301, "60"), (429, "soon"), (429, "-1"), (429, "1.5")]
    )
    def test_responses_that_are_no_hold(self, status, value):
        busy = hit("a.example", "/", 2, status=status, Retry_After=value)
        assert rules(log(busy, hit("a.example", "/", 5))) == []

    def test_backoff_doubles(self):
        ends = itertools.accumulate([2, 2.2, 4.2, 7.9], lambda at, gap: at + 0.1 + gap)
        hits = log(*(hit("a.example", "/", at, status=503) for at in ends))
        assert violations(hits) == []
        (sentence,) = violations(hits, backoff=2)
        assert all(value in sentence for value in ("7.900 s", "#5", "8.000 s"))
        assert violations(hits, backoff=2, backoff_max=7) == []

    def test_a_success_ends_the_series_of_failures(self):
        statuses = [503, 200, 503, 200]
        hits = log(*(hit("a.example", "/", 2 + 3 * n, status=s) for n, s in enumerate(statuses)))
        assert rules(hits, backoff=2, max_retries=1) == []

    def test_retries_have_an_end(self):
        hits = log(*(hit("a.example", "/", 2 + 2 * n, status=429) for n in range(4)))
        assert rules(hits, max_retries=3) == []
        assert rules(hits, max_retries=2) == ["R5"]


class TestR6Scope:
    def test_only_get_and_head(self):
        hits = log(hit("a.example", "/", 2, method="POST"), hit("b.example", "/", 3, method="HEAD"))
        assert rules(hits) == ["R6"]

    def test_only_declared_targets_and_their_redirects(self):
        hits = log(
            hit("a.example", "/feed", 2, status=301, Location="/new#top"),
            hit("a.example", "/new", 4),
            hit("a.example", "/icon.png", 6),
        )
        (sentence,) = violations(hits, declared=["http://a.example/feed#x"])
        assert "#5 GET http://a.example/icon.png" in sentence

    def test_the_operators_own_documents_are_declared(self):
        hits = [hit("op.example", "/list", 0)]
        assert rules(hits, declared=[], robots_exempt=["http://op.example/list"]) == []


class TestR7Validators:
    @pytest.mark.parametrize(
        ("path", "validators", "broken"),
        [
            ("/", {"If-None-Match": '"1"', "If-Modified-Since": "Thu"}, []),
            ("/", {"If-None-Match": '"1"'}, ["R7"]),
            ("/", {"If-None-Match": "1", "If-Modified-Since": "Thu"}, ["R7"]),
            ("/other", {"If-None-Match": '"1"'}, ["R7"]),
        ],
    )
    def test_validators_are_sent_as_they_were_given(self, path, validators, broken):
        first = hit("a.example", "/", 2, ETag='"1"', Last_Modified="Thu")
        again = hit("a.example", path, 4, headers=validators.items(), status=304)
        assert rules(log(first, again), conditional=True) == broken
        assert rules(log(first, again)) == [], "it is off by default"

    def test_a_304_replaces_validators(self):
        hits = log(
            hit("a.example", "/", 2, ETag='"1"'),
            hit("a.example", "/", 4, status=304, headers=[("If-None-Match", '"1"')], ETag='"2"'),
            hit("a.example", "/", 6, headers=[("If-None-Match", '"1"')]),
        )
        (sentence,) = violations(hits, conditional=True)
        assert "#5" in sentence
        assert 'If-None-Match: "1"' in sentence


class TestR8Frequency:
    @pytest.mark.parametrize(
        ("status", "broken"), [(200, ["R8"]), (304, ["R8"]), (410, ["R8"]), (503, [])]
    )
    def test_revisit(self, status, broken):
        hits = log(hit("a.example", "/", 2, status=status), hit("a.example", "/", 9))
        assert rules(hits) == []
        assert rules(hits, revisit=10) == broken


class TestR4Connections:
    def opened(self, host, start, end, handshake="", client=0):
        scheme = "https" if handshake else "http"
        return ConnectionRecord(host, scheme, start, end, handshake, client)

    def broken(self, *connections, log=(), **terms):
        return violations(log, connections=connections, **terms)

    def test_one_after_the_other(self):
        first, second = self.opened("a.example", 0, 1), self.opened("b.example", 1, math.inf)
        assert self.broken(second, first) == []

    def test_two_at_once(self):
        first, second = self.opened("a.example", 0, 2), self.opened("b.example", 1.5, 3)
        (sentence,) = self.broken(first, second)
        assert sentence.startswith("R4: b.example: connection 2 ")
        assert all(value in sentence for value in ("0.500 s", "connection 1", "http://a.example"))

    def test_one_that_stays_open_overlaps_all_that_follow(self):
        later = [self.opened("b.example", 10 * start, 10 * start + 1) for start in (1, 2)]
        assert len(self.broken(self.opened("a.example", 0, math.inf), *later)) == 2

    def test_many_hosts_at_once_if_not_serial(self):
        both = self.opened("a.example", 0, 2), self.opened("b.example", 1, 3)
        assert self.broken(*both, serial=False) == []
        again = self.opened("a.example", 1.5, 3)
        (sentence,) = self.broken(*both, again, serial=False)
        assert sentence.startswith("R4: a.example: connection 3 ")

    @pytest.mark.parametrize(("allowed", "broken"), [(None, 0), (2, 0), (1, 1)])
    def test_full_handshakes(self, allowed, broken):
        kinds = ["full", "resumed", "full", "failed"]
        connections = [
            self.opened("a.example", 10 * n, 10 * n + 1, kind) for n, kind in enumerate(kinds)
        ]
        found = self.broken(*connections, full_handshakes=allowed)
        assert len(found) == broken
        assert all("2 full TLS" in sentence for sentence in found)

    def test_a_connection_without_a_request_counts_as_a_contact(self):
        failed = self.opened("a.example", 10.0, 10.1, "failed", client=7)
        assert self.broken(failed, log=POLITE) == []
        (sentence,) = self.broken(failed, self.opened("a.example", 10.5, 10.6, "failed"))
        assert sentence.startswith("R4: a.example: 0.500 s ")
        (sentence,) = self.broken(failed, blocked=["a.example"])
        assert sentence.startswith("R3: a.example: #1 CONNECT ")

    def test_a_connection_with_a_request_is_not(self):
        sent = replace(hit("a.example", ROBOTS, 10.2), client=7)
        carried = self.opened("a.example", 10.0, 10.4, client=7)
        assert self.broken(carried, log=[sent]) == []
        # The next connection has the same port by chance, and carries nothing.
        chance = self.opened("a.example", 10.5, 10.6, client=7)
        assert len(self.broken(carried, chance, log=[sent])) == 1

    def test_connections_to_a_proxy_are_no_contacts(self):
        assert self.broken(self.opened("", 0, 1), self.opened("", 1, 2)) == []

    def test_connections_alone_prove_something(self):
        assert_polite([], connections=[self.opened("a.example", 0, 1)])
        with pytest.raises(AssertionError, match="the log is empty"):
            assert_polite([], connections=[])
