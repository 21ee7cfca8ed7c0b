"""The conformance test: it fails a crawler that breaks every rule, and passes this project's."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import SimpleNamespace
from urllib.parse import urlsplit

import jsonschema
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

from tests.helpers import HANG_SECONDS, ROOT, cases
from walsh_scrapy.console import main
from walsh_scrapy.policy.signing import PrivateKey, RequestSigner
from walsh_scrapy.testing.conformance import (
    RULES,
    SCENARIOS,
    Level,
    Run,
    TrialError,
    Verdict,
    crawler,
    run,
)
from walsh_scrapy.testing.conformance.conformance import show, verdict_of
from walsh_scrapy.testing.conformance.crawler import Places
from walsh_scrapy.testing.conformance.optouts import BLOCKLIST_URL
from walsh_scrapy.testing.conformance.scenario import Seen, TrialLog
from walsh_scrapy.testing.conformance.trial import UNAVOIDABLE
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.site import Reply, Site, redirect, reply_of

SCHEMA = json.loads((files("walsh_scrapy") / "conformance.schema.json").read_text("utf-8"))
BAD = [sys.executable, str(ROOT / "tests" / "helpers" / "badcrawler.py")]
HOST = "plain.example"
WITH_NAMES = ["opted-out-subdomain", "opted-out-case"]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def patient():
    """Let no run be cut off, however much else the machine has to do."""
    with pytest.MonkeyPatch.context() as patch:
        for run in Run:
            patch.setitem(crawler.TIMEOUT_SECONDS, run, HANG_SECONDS)
        yield


@pytest.fixture(scope="module")
def bad(patient):
    """The scorecard of a crawler that breaks every rule."""
    if sys.platform != "linux":
        pytest.skip("each host has an address of its own on Linux only")
    return run(BAD)


def findings(card):
    return {result.scenario.name: result.finding for result in card.results}


@pytest.mark.crawl
def test_each_scenario_can_fail(bad):
    found = findings(bad)
    assert len(found) == len(SCENARIOS)
    # Subdomains need names, which are there behind a proxy.
    found |= findings(run(BAD, WITH_NAMES, proxy=True))
    # Whoever asks everything at once holds no first request back, and uses no old list.
    assert found.pop("first-request").verdict is Verdict.PASS
    assert found.pop("list-expired").verdict is Verdict.PASS
    for scenario in SCENARIOS:
        if (finding := found.get(scenario.name)) is None:
            continue
        if scenario.level is Level.MAY:
            assert finding.verdict is Verdict.NOT_APPLICABLE, scenario.name
            assert "(MAY)" in finding.reason, scenario.name
        else:
            assert finding.verdict is Verdict.FAIL, (scenario.name, finding)
        assert finding.lines, scenario.name
    assert not bad.is_conformant


@pytest.mark.crawl
def test_the_lines_of_the_log_prove_the_failure(bad):
    found = findings(bad)
    lines = found["redirect-to-denied-path"].lines
    assert " first GET http://to-path.example/robots.txt If-None-Match" not in lines[0]
    assert "http://to-path.example/no/feed.xml " in "".join(lines)
    assert "Cookie: a=b" in found["nothing-private"].lines[0]
    assert " POST " in found["read-only"].lines[0]
    assert "Retry-After: 15" in found["429-seconds"].lines[0]
    assert "127." not in "".join(line for finding in found.values() for line in finding.lines)


@pytest.mark.crawl
def test_the_json_is_as_its_schema_says(bad):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(json.dumps(bad.as_dict()))
    jsonschema.validate(document, SCHEMA)
    assert {result["rule"] for result in document["results"]} == set(RULES)
    assert [run["run"] for run in document["runs"]] == [run.value for run in Run]


@pytest.mark.crawl
def test_the_scorecard_as_text(bad, capsys):
    show(bad)
    text = capsys.readouterr().out
    columns, first, *_ = text.splitlines()
    assert columns.split()[:3] == ["rule", "pass", "fail"]
    assert first.split()[:3] == ["R1", "0", "7"]
    assert "\nfail: R1 one-user-agent (MUST): " in text
    shown = re.findall(r"^(fail|pass|not applicable|could not run): ", text, re.MULTILINE)
    assert set(shown[: shown.count("fail")]) == {"fail"}
    reasons = [finding.reason for finding in findings(bad).values() if finding.verdict == "fail"]
    assert any(f"    I{reason[1:]}.\n" in text for reason in reasons if reason.startswith("it "))
    assert text.endswith(f"{verdict_of(bad)}\n")
    show(replace(bad, results=(), user_agents=("\x1b[31m",)))
    told = capsys.readouterr().out
    assert told.endswith("0 scenarios.\n")
    assert "\x1b" not in told


@pytest.mark.crawl
@pytest.mark.usefixtures("patient")
def test_this_project_passes(capfd, monkeypatch, pytestconfig):
    """A part of the scenarios, through the command; docs/conformance.md has all of them."""
    monkeypatch.chdir(pytestconfig.rootpath)
    words = ["R1", "robots-first", "longest-match", "one-a-second", "429-seconds", "opted-out"]
    words += ["no-links-followed", "etag"]
    command = [sys.executable, "-m", "scrapy", "crawl", "feeds", "-a", "sources={seeds}"]
    command += ["-a", "force=1", "-s", "WALSH_STATE_URL=sqlite:///{folder}/state.sqlite3"]
    command += ["-s", "WALSH_BLOCKLIST_URL={blocklist}", "-s", "WALSH_BLOCKLIST_SCHEMA_URL="]
    command += ["-s", "WALSH_SIGNING_KEY={key}"]
    command += ["-s", "WALSH_SIGNATURE_AGENT=https://bot.example.org/keys"]
    given = ["conformance", "--json", "--rules", ",".join(words), "--", *command]
    with pytest.raises(SystemExit) as ended:
        main(given)
    told = capfd.readouterr()
    assert not ended.value.code, told
    document = json.loads(told.out)
    jsonschema.validate(document, SCHEMA)
    verdicts = {result["scenario"]: result["verdict"] for result in document["results"]}
    assert set(verdicts.values()) == {"pass"}, document
    assert len(verdicts) == len(words) + 6
    runs = [line.partition(" run, ")[0] for line in told.err.splitlines()[:2]]
    assert runs == ["first", "forced"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name the command"),
        (["--rules", "R2,nonsense", "--", "true"], "nonsense"),
        (["--", "no-such-program-anywhere"], "no-such-program-anywhere: No such file"),
        (
            ["--rules", "R9", "--", sys.executable, "-c", "print('lost')"],
            "no request. It wrote:\nlo",
        ),
        (["--rules", "R9", "--", "true"], "no request. It wrote nothing."),
    ],
)
def test_a_wrong_call_is_exit_status_2(run_command, words, told):
    done = run_command("conformance", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.crawl
def test_what_a_run_did_not_reach_is_no_failure(monkeypatch, tmp_path):
    """A crawler that asks for one robots.txt, after which an hour seems to go by."""
    asked = tmp_path / "asked"
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0 * asked.exists())
    monkeypatch.setattr(crawler, "time", clock)
    lines = (
        "import os, time, urllib.request as u",
        "seed = open(os.environ['CONFORMANCE_SEEDS']).readline()",
        "u.urlopen('/'.join(seed.split('/')[:3]) + '/robots.txt')",
        f"open({str(asked)!r}, 'x').close()",
        "time.sleep(600)",
    )
    names = ["opted-out", "429-seconds", "503-seconds"]
    card = run([sys.executable, "-c", "\n".join(lines)], names)
    verdicts = [result.finding.verdict for result in card.results]
    # It would have requested the list before anything else.
    assert verdicts == [Verdict.NOT_APPLICABLE, Verdict.NOT_RUN, Verdict.NOT_RUN]
    assert "--patience 2" in card.results[1].finding.reason
    assert card.calls[0].cut
    assert names_of(card.not_shown) == ["429-seconds", "503-seconds"]
    assert verdict_of(card).endswith("429-seconds, 503-seconds.")


def test_scenarios_are_whole():
    """Names are given once, a host has one site, and each seed has one."""
    assert len(BY_NAME) == len(SCENARIOS)
    sites = {}
    for scenario in SCENARIOS:
        for site in scenario.sites:
            assert sites.setdefault(site.name, site) is site, site.name
        for url in (*scenario.seeds, *scenario.pages):
            assert urlsplit(url).hostname in scenario.hosts, url
    assert {scenario.rule for scenario in SCENARIOS} == {f"R{number}" for number in range(1, 10)}
    assert urlsplit(BLOCKLIST_URL).hostname in sites


@pytest.fixture(scope="module")
def page(pytestconfig):
    return (pytestconfig.rootpath / "docs" / "conformance.md").read_text("utf-8")


def test_the_page_lists_every_scenario(page):
    lists = page.partition("\n## The scenarios\n")[2]
    listed = [
        (rule, name, level or "MUST")
        for rule, names in re.findall(r"^- \[(R\d)\](.+(?:\n  .+)*)", lists, re.MULTILINE)
        for name, level in re.findall(r"`([\w-]+)`(?:\s\((SHOULD|MAY)\))?", names)
    ]
    assert listed == [(scenario.rule, scenario.name, scenario.level) for scenario in SCENARIOS]


def test_the_program_of_the_page_prints_requirements(page, capsys):
    _, program = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    exec(program, {})
    last = SCENARIOS[-1]
    assert capsys.readouterr().out.splitlines()[-1].split("\t") == [
        last.rule,
        last.level,
        last.name,
        last.requirement,
    ]


@pytest.mark.crawl
def test_the_test_of_a_project_in_the_page_fails_a_bad_crawler(page):
    block, _ = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    given = {}
    exec(block.replace('["my-crawler", "--urls", "{seeds}"]', repr(BAD)), given)
    with pytest.raises(AssertionError):
        given["test_is_polite"]()


def test_served_pages_have_addresses_and_the_log_has_host_names():
    places = Places([HOST, "b.example"], {"http": 8000, "https": 8443, "http-alt": 9000})
    text = f"http://{HOST}/x https://b.example c.example http://www.b.example {{token}}"
    placed = "http://127.2.0.1:8000/x https://127.2.0.2:8443 c.example http://www.b.example"
    assert places.text(text) == f"{placed} {{token}}"
    pages = {"/a": redirect("http://b.example/b"), "/c": [lambda _: Reply(f"at {HOST}"), b"x"]}
    site = places.site(Site(HOST, text, pages))
    hit = seen("/a", host="127.2.0.1").hit
    assert site.name == "127.2.0.1"
    assert site.robots == f"{placed} {{token}}"
    assert reply_of(site.pages["/a"], hit).headers == [("Location", "http://127.2.0.2:8000/b")]
    assert reply_of(site.pages["/c"], hit).body == "at 127.2.0.1"
    told = replace(hit, headers=(("Referer", "http://127.2.0.2:8000/"),), port=8000)
    named = places.hit(told)
    assert (named.url, named.header("Referer")) == (f"http://{HOST}/a", "http://b.example/")
    assert Places([HOST]).text(text) == text


def test_a_second_port_of_a_host_is_another_port_of_its_address():
    places = Places([HOST], {"http": 8000, "https": 8443, "http-alt": 9000})
    text = f"http://{HOST}:8080/x http://{HOST}/x"
    assert places.text(text) == "http://127.2.0.1:9000/x http://127.2.0.1:8000/x"
    assert places.site(Site(f"{HOST}:8080")).name == "127.2.0.1:9000"
    hit = seen("/a", host="127.2.0.1").hit
    assert places.hit(replace(hit, port=9000)).url == f"http://{HOST}:8080/a"
    assert places.hit(replace(hit, port=8000)).url == f"http://{HOST}/a"


def seen(path, at=0.0, host=HOST, status=200, run=Run.FIRST, answer=(), took=0.01):
    hit = Hit(at, at + took, 1e9 + at, "GET", "http", host, 80, path, status=status, answer=answer)
    return Seen(hit, run, at)


def judged(name, *requests):
    scenario = BY_NAME[name]
    (host, *_) = (site.host for site in scenario.sites)
    placed = tuple(replace(request, hit=replace(request.hit, host=host)) for request in requests)
    return scenario.check(TrialLog(placed, scenario.hosts)).verdict


def seen_as(path, at, more=None):
    """A row of the table: a path, a second, and what else is known."""
    given = dict(more or {})
    names = {"retry_after": "Retry-After", "location": "Location"}
    given["answer"] = tuple((names[key], given.pop(key)) for key in sorted(given) if key in names)
    return seen(path, at, **given | {"run": Run(given.get("run", Run.FIRST))})


@pytest.mark.parametrize(
    ("first_page", "verdict"), [(None, "not applicable"), ("/robots.txt", "fail")]
)
def test_a_host_without_trusted_tls_has_no_crawl_delay(first_page, verdict):
    """A failed TLS handshake waits for the Crawl-delay only once robots.txt was read."""
    scenario = BY_NAME["crawl-delay-hop-scheme"]
    (host,) = scenario.hosts
    failed = [seen("", at, host, status=0) for at in (1.0, 3.0, 7.0)]
    silent = tuple(
        replace(it, hit=replace(it.hit, method="CONNECT", scheme="https")) for it in failed
    )
    read = [] if first_page is None else [seen(first_page, 0.0, host)]
    requests = tuple(replace(it, hit=replace(it.hit, scheme="https", port=443)) for it in read)
    log = TrialLog(requests, scenario.hosts, silent=silent)
    assert scenario.check(log).verdict == verdict


@pytest.mark.parametrize(
    ("at", "verdict"),
    [
        ({"operator": [0], "to-optedout-slowly": [90]}, "not applicable"),
        ({"operator": [0], "to-optedout-slowly": [8, 91]}, "fail"),
        ({"operator": [0, 80], "to-optedout-slowly": [91]}, "pass"),
        ({"operator": [0, 80, 90], "to-optedout-slowly": [300]}, "pass"),  # the third is none
    ],
)
def test_a_list_is_used_for_its_refresh(at, verdict):
    log = [
        seen("/feed.xml", float(second), f"{host}.example")
        for host, seconds in at.items()
        for second in seconds
    ]
    log.sort(key=lambda each: each.at)
    scenario = BY_NAME["list-expired"]
    assert scenario.check(TrialLog(tuple(log), scenario.hosts)).verdict == verdict


def with_head(path, at, *, run=Run.FIRST, sent=(), answer=()):
    """Return a HEAD and, two seconds later, a GET with these headers."""
    requests = []
    for moment, method, headers in ((at, "HEAD", ()), (at + 2, "GET", sent)):
        request = seen(path, moment, run=run, answer=answer)
        hit = replace(request.hit, method=method, headers=headers, complete=True)
        requests.append(replace(request, hit=hit))
    return requests


@pytest.mark.parametrize(
    ("name", "field", "condition"),
    [
        ("etag", "ETag", "If-None-Match"),
        ("last-modified", "Last-Modified", "If-Modified-Since"),
    ],
)
def test_a_head_need_not_send_validators(name, field, condition):
    answer = ((field, "1"),)
    first = with_head("/a", 0.0, answer=answer)
    forced = with_head("/a", 20.0, run=Run.FORCED, sent=((condition, "1"),), answer=answer)
    assert judged(name, *first, *forced) == "pass"


def test_a_head_before_a_get_is_no_second_request():
    assert judged("same-url-once", *with_head("/a", 0.0)) == "pass"
    pages = [seen("/a", 5.0), seen("/b", 7.0)]
    assert judged("robots-kept", *with_head("/robots.txt", 0.0), *pages) == "pass"


@cases("name", "verdict", "requests")
def test_the_verdict_on_a_few_requests(name, verdict, requests):
    assert judged(name, *(seen_as(*request) for request in requests)) == verdict


@pytest.mark.parametrize(
    ("token", "verdict"), [("Walsh-Research", "not applicable"), ("Example-Bot", "fail")]
)
def test_walsh_research_may_go_on_without_robots_txt(token, verdict):
    agent = (("User-Agent", f"Mozilla/5.0 (compatible; {token}/1.0; +https://bot.example/)"),)
    requests = (
        replace(exchange, hit=replace(exchange.hit, headers=agent))
        for exchange in (seen("/robots.txt", status=500), seen("/feed.xml", 2.0))
    )
    assert judged("robots-error", *requests) == verdict


def test_a_user_agent_may_be_demanded_exactly():
    hits = [seen(path).hit for path in ("/robots.txt", "/feed.xml")]
    sent = tuple(
        Seen(replace(hit, headers=(("user-agent", "Bot/1"),)), Run.FIRST, 0.0) for hit in hits
    )
    scenario = BY_NAME["one-user-agent"]
    for demanded, verdict in ((None, "pass"), ("Bot/1", "pass"), ("Bot/2", "fail")):
        evidence = TrialLog(sent, scenario.hosts, user_agent=demanded)
        assert scenario.check(evidence).verdict == verdict


def trial(*requests):
    """Requests to hosts, each with the seconds without any request before it."""
    at, log = 0.0, []
    for host, idle in requests:
        at += idle + 0.1
        log.append(seen("/a", at - 0.1, host=f"{host}.example", took=0.1))
    return TrialLog(tuple(log), frozenset())


AGAIN = [("a", 0.1), ("b", 0.0), ("a", 0.0)]


@pytest.mark.parametrize(
    ("requests", "verdict"),
    [
        ([(name, 3.0) for name in "abcdefghi"] + AGAIN, "fail"),
        ([(name, 3.0) for name in "abcdefgh"] + [("i", 0.0), *AGAIN], "pass"),
        ([(name, 1.0) for name in "abcdefghiabc"], "not applicable"),
        ([(name, 3.0) for name in "abcd"] + AGAIN, "not applicable"),
    ],
)
def test_first_requests_are_late_only_if_all_are_and_no_others(requests, verdict):
    assert BY_NAME["first-request"].check(trial(*requests)).verdict == verdict


def listing(name, *hosts):
    """Return the verdict on a request to each host; the operator has the list."""
    paths = {"operator": "/blocklist.json"}
    log = [
        seen(paths.get(host, "/feed.xml"), float(at), f"{host}.example")
        for at, host in enumerate(hosts)
    ]
    return BY_NAME[name].check(TrialLog(tuple(log), BY_NAME[name].hosts)).verdict


@cases("name", "verdict", "hosts")
def test_a_listed_domain_gets_no_request_after_that_list(name, verdict, hosts):
    assert listing(name, *hosts) == verdict


def refused(pauses_of, *, in_queue=()):
    """Return the verdict of a crawler that waits so long after each refusal, host by host.

    The retries in_queue, numbered from 0, come directly after a request to another host.
    """
    scenario = BY_NAME["always-503"]
    log = [seen("/", number / 100, f"quick-{number}.example") for number in range(20)]
    for number, site in enumerate(scenario.sites, 1):
        at = 100.0 * number
        log.append(seen("/feed.xml", at, site.host, status=503))
        for retry, pause in enumerate(pauses_of(number)):
            at += 0.01 + pause
            if retry in in_queue:
                log.append(seen("/", at - 0.01, "quick-0.example"))
            log.append(seen("/feed.xml", at, site.host, status=503))
    log.sort(key=lambda each: each.at)
    return scenario.check(TrialLog(tuple(log), scenario.hosts)).verdict


@pytest.mark.parametrize(
    ("pauses", "verdict"),
    [
        (lambda _: (), "pass"),
        (lambda host: (2 + host / 10, 4 + host / 10, 8), "pass"),
        (lambda host: (2 + host / 10, *[4 + host / 10] * 3), "pass"),  # up to a maximum
        (lambda host: (2 + host / 10, 4 + host / 10, 2 + host / 10), "pass"),
        (lambda host: (5 + host / 10, 2), "fail"),  # they shrink
        (lambda host: (3 + host / 10, 3 + host / 10), "fail"),  # they stay
        (lambda _: (2, 4, 8), "fail"),  # without chance
        (lambda _: (0.5,), "fail"),
        (lambda host: tuple(n + host / 10 for n in range(2, 11)), "pass"),
        (lambda host: tuple(n + host / 10 for n in range(2, 12)), "fail"),  # too many tries
        (lambda host: (3,) if host == 5 else (), "pass"),  # too few hosts to tell
    ],
)
def test_pauses_after_503_have_to_grow_by_chance(pauses, verdict):
    assert refused(pauses) == verdict


@pytest.mark.parametrize(("in_queue", "verdict"), [((), "fail"), ((0,), "pass")])
def test_a_retry_that_waited_for_its_turn_shows_no_wait(in_queue, verdict):
    def pauses(host):
        return 30, 2 + host / 10, 4 + host / 10, 8 + host / 10

    assert refused(pauses, in_queue=in_queue) == verdict


def test_retries_after_the_least_delay_do_not_grow():
    """Each came after another request, and the last one is too early for any growth."""
    assert refused(lambda _: (30, 1), in_queue=(0, 1)) == "fail"
    assert refused(lambda _: (30, 2), in_queue=(0, 1)) == "pass"


def test_constant_waits_are_seen_although_some_retries_are_late():
    random = Random(1)

    def pauses(_):
        return [random.uniform(2, 3) for _ in range(4)]

    assert {refused(pauses, in_queue=late) for late in ((), (1,), (2,), (3,))} == {"fail"}


def crawled_serially(pause):
    """Return the verdict of a serial crawler, whose retries wait for their turn.

    `pause` returns the seconds of its wait before a retry, by the number of that retry.
    """
    scenario = BY_NAME["always-503"]
    log = [seen("/", number / 100, f"quick-{number}.example") for number in range(20)]
    visits = [(0.0, number, 0) for number in range(len(scenario.sites))]
    now = 1.0
    while visits:
        ready, place, retry = visits.pop(visits.index(min(visits)))
        now = max(now, ready)
        site = scenario.sites[place]
        began = seen("/feed.xml", now, site.host, status=503)
        reply = reply_of(site.pages["/feed.xml"], replace(began.hit, number=retry + 1))
        log.append(seen("/feed.xml", now, site.host, status=503, took=0.005 + reply.delay))
        now = log[-1].hit.ended
        if retry < 4:
            visits.append((now + pause(retry), place, retry + 1))
    return scenario.check(TrialLog(tuple(log), scenario.hosts)).verdict


@pytest.mark.parametrize(
    ("wait", "failed"),
    [
        (lambda _: 2.0, (990, 1000)),  # constant
        (lambda retry: 2.0 * 2**retry, (0, 0)),
        (lambda retry: min(4.0, 2.0 * 2**retry), (0, 0)),  # up to a maximum
    ],
)
def test_constant_waits_of_a_serial_crawler_are_seen(wait, failed):
    random = Random(1)

    def pause(retry):
        return wait(retry) * random.uniform(1.0, 1.5)

    verdicts = Counter(crawled_serially(pause) for _ in range(1000))
    least, most = failed
    assert least <= verdicts["fail"] <= most, verdicts


def test_full_jitter_over_eight_hosts_is_growth():
    """The contract's own backoff: `base x 2^n x rand`, at least a second after each try."""
    random = Random(1)

    def jitter(_):
        return [max(1.0, 2.0 * 2**attempt * random.random()) for attempt in range(4)]

    verdicts = Counter(refused(jitter) for _ in range(1000))
    assert verdicts["fail"] <= 1, verdicts


@pytest.mark.parametrize(
    ("pause", "verdict"),
    [
        (lambda n, chance: 2.0 * (n + 1) * chance(0.96, 1.04), "fail"),  # linear
        (lambda n, chance: 2.0 * 1.5**n * chance(0.96, 1.04), "pass"),  # by a smaller factor
        (lambda n, chance: 2.0 * 2.0**n * chance(1.0, 1.5), "pass"),
        (lambda n, chance: min(9.0, 2.0 * 2.0**n) * chance(0.9, 1.1), "pass"),  # up to a limit
        (lambda n, chance: 3.0 + 2.0 * 2.0**n * chance(1.0, 1.1), "pass"),  # and a wait
    ],
)
def test_linear_growth_of_pauses_is_reported_where_certain(pause, verdict):
    random = Random(1)

    def pauses(_):
        return [pause(attempt, random.uniform) for attempt in range(4)]

    assert {refused(pauses) for _ in range(200)} == {verdict}


@pytest.mark.parametrize(("path", "verdict"), [("/a.xml", "pass"), ("/image.png", "fail")])
def test_only_declared_urls_are_requested_in_a_trial(path, verdict):
    asked = (seen("/robots.txt"), seen(path, 2))
    given = frozenset({f"http://{HOST}/a.xml"})
    scenario = BY_NAME["nothing-undeclared"]
    evidence = TrialLog(asked, scenario.hosts, declared=given)
    assert scenario.check(evidence).verdict == verdict


@pytest.mark.parametrize(("sent", "verdict"), [('"1"', "pass"), ('"2"', "fail"), (None, "fail")])
def test_only_the_first_request_of_the_later_run_is_judged(sent, verdict):
    """A crawler may ask twice in the first run, with what it has learned."""
    asked = [
        seen("/", at, run=run) for at, run in ((0, Run.FIRST), (9, Run.FIRST), (20, Run.FORCED))
    ]
    for number, condition in enumerate((None, '"1"', sent)):
        headers = (("If-None-Match", condition),) if condition else ()
        hit = replace(asked[number].hit, headers=headers, answer=(("ETag", '"1"'),), complete=True)
        asked[number] = replace(asked[number], hit=hit)
    assert judged("etag", *asked) == verdict


@pytest.mark.parametrize(("at", "verdict"), [(4, "fail"), (5, "pass")])
def test_a_request_to_another_host_waits_too(at, verdict):
    scenario = BY_NAME["serial"]
    slow = [seen(path, began, "slow.example", took=2) for path, began in (("/a", 0), ("/b", 3))]
    log = TrialLog((*slow, seen("/c", at)), scenario.hosts)
    assert scenario.check(log).verdict == verdict


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_no_request_at_all_proves_nothing(name):
    assert judged(name) == "not applicable"


def test_a_program_without_requests_ends_the_trial():
    with pytest.raises(TrialError, match="made no request"):
        run([sys.executable, "-c", ""], ["R9"])


def test_a_proxy_of_the_caller_is_not_inherited(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "*")
    given = crawler.CrawlerInput(*[tmp_path] * 5, blocklist="", proxy="")
    environment = given.environment(Run.AGAIN)
    assert not [name for name in environment if "proxy" in name.lower() and environment[name]]
    assert "CONFORMANCE_FORCE" not in environment
    assert given.environment(Run.FORCED)["CONFORMANCE_FORCE"] == "1"
    assert given.command(["a{seeds}", "{x}"]) == [f"a{tmp_path}", "{x}"]
    assert environment.items() >= {"PATH": os.environ["PATH"]}.items()


# The scenarios of signed requests: what a site would refuse fails, and nothing else.

Request = namedtuple("Request", "method url headers")
SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
NOW = 1e9
KEY = PrivateKey.generate()
SIGNING = ["signatures-verify", "signature-of-its-own", "no-signature-over-http", "all-signed"]


def request(scheme, host=HOST, headers=()):
    hit = Hit(0.0, 0.01, NOW, "GET", scheme, host, 443, "/feed.xml", status=200, headers=headers)
    return Seen(hit, Run.FIRST, 0.0)


def signed(*, to=HOST, host=HOST, late=0, key=KEY, form="dictionary", scheme="https", **fields):
    """Return a request to a host with a signature for that or for another one."""
    signer = RequestSigner(key=key, agent="https://bot.example/", form=form)
    given = signer.fields(to, NOW - late, f"nonce {late} {to}") | fields
    headers = (("Host", host), *((name, value) for name, value in given.items() if value))
    return request(scheme, host, headers)


def of_signatures(name, *requests):
    public = Ed25519PublicKey.from_public_bytes(KEY.public.data)
    return SCENARIO[name].check(TrialLog(requests, frozenset({HOST}), key=public))


@pytest.mark.parametrize("form", ["dictionary", "string"])
def test_signed_requests_of_both_forms_pass(form):
    port = "127.2.0.1:40123"
    requests = [
        signed(form=form),
        signed(form=form, to="b.example:8443", host="b.example:8443"),
        replace(signed(form=form), original=signed(form=form, to=port, host=port).hit),
        request("http"),
    ]
    assert [of_signatures(name, *requests).verdict for name in SIGNING] == ["pass"] * 4


class OneKey(HTTPSignatureKeyResolver):
    """Signs with the key by a library that is not ours."""

    def resolve_private_key(self, key_id):
        return load_pem_private_key(KEY.pem, None)


@pytest.mark.parametrize("url", [f"https://{HOST}/feed.xml?a=b", f"https://{HOST}/feed.xml"])
def test_a_signature_may_cover_every_part_of_a_request(url):
    agent, path = '"https://bot.example/"', url.removeprefix(f"https://{HOST}")
    message = Request("GET", url, {"User-Agent": "Bot/1", "Signature-Agent": agent})
    covered = ["@method", "@target-uri", "@authority", "@scheme", "@path", "@request-target"]
    covered += ["@query"] if "?" in url else []
    HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=OneKey()).sign(
        message,
        key_id=KEY.public.thumbprint,
        created=datetime.fromtimestamp(NOW - 5, UTC),
        expires=datetime.fromtimestamp(NOW + 5, UTC),
        tag="web-bot-auth",
        covered_component_ids=[*covered, "user-agent", "signature-agent"],
    )
    sent = request("https", HOST, (("Host", f"{HOST}:443"), *message.headers.items()))
    right, wrong = (
        replace(sent, hit=replace(sent.hit, path=target)) for target in (path, "/other")
    )
    assert of_signatures("signatures-verify", right).verdict == "pass"
    assert of_signatures("signatures-verify", wrong).verdict == "fail"


@pytest.mark.parametrize("name", SIGNING)
def test_signatures_do_not_apply_to_who_signs_nothing(name):
    assert of_signatures(name, request("https"), request("http")).verdict == "not applicable"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"late": 61}, "expired 6.0 s"),
        ({"Signature-Agent": ""}, "has no Signature-Agent"),
        ({"Signature-Input": 'sig1=();tag="web-bot-auth"'}, "created"),
        ({"key": PrivateKey.generate()}, "it signs with two keys"),
    ],
)
def test_a_signature_that_a_site_would_refuse_fails(wrong, told):
    finding = of_signatures("signatures-verify", signed(late=1), signed(**wrong))
    assert finding.verdict == "fail"
    assert told in finding.reason


def test_a_key_that_was_not_given_is_not_judged():
    other = PrivateKey.generate()
    assert of_signatures("signatures-verify", signed(key=other)).verdict == "not applicable"
    assert of_signatures("signatures-verify", signed(key=other, late=61)).verdict == "fail"


def test_a_signature_counts_for_one_request():
    assert of_signatures("signature-of-its-own", signed()).verdict == "not applicable"
    assert of_signatures("signature-of-its-own", signed(), signed(late=1)).verdict == "pass"
    hop = of_signatures("signature-of-its-own", signed(), signed(host="b.example"))
    assert hop.verdict == "fail"
    assert "Signature-Input: sig1=" in hop.lines[0]


def test_signatures_over_http_and_requests_without_one():
    over_http = signed(scheme="http")
    assert of_signatures("no-signature-over-http", over_http).verdict == "fail"
    assert of_signatures("no-signature-over-http", signed()).verdict == "not applicable"
    assert of_signatures("all-signed", signed(), request("https")).verdict == "fail"


# The conformance test passes an honest stranger, and no crawler that cheats.

HELPERS = ROOT / "tests" / "helpers"
HONEST, CHEAT = ([sys.executable, str(HELPERS / name)] for name in ("honest.py", "cheat.py"))
#: An honest crawler signs nothing, and keeps a robots.txt for a day.
NOT_SHOWN = {"opt-out-later", "request-rate", "visit-time", "version-2", *WITH_NAMES}


@pytest.mark.crawl
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="each host has an address on Linux only")
def test_an_honest_serial_crawler_passes():
    """It knows nothing of this project, and has one request under way."""
    card = run(HONEST)
    others = {
        name: finding for name, finding in findings(card).items() if finding.verdict != "pass"
    }
    assert set(others) == NOT_SHOWN | set(SIGNING), others
    assert card.is_conformant


@pytest.mark.crawl
def test_an_honest_crawler_passes_where_hosts_have_names():
    card = run(HONEST, [*WITH_NAMES, "opted-out-hop-port", "second-hop-scheme"], proxy=True)
    assert {result.finding.verdict for result in card.results} == {Verdict.PASS}, card.results
    assert card.keeps_what_was_tried
    assert not card.is_conformant, "these are not all scenarios"


@pytest.mark.crawl
@pytest.mark.parametrize("client", ["curl", "wget", "node", "perl", "httpx", "urllib3"])
def test_a_head_before_each_get_is_honest(client):
    """The crawler is `honest.py`, whose requests another program or library makes."""
    is_there = find_spec(client) if client in ("httpx", "urllib3") else shutil.which(client)
    if not is_there:
        pytest.skip(f"{client} is not installed")
    command = [sys.executable, str(HELPERS / "headfirst.py"), client]
    card = run(command, ["etag", "last-modified", "same-url-once", "disallow"])
    assert {result.finding.verdict for result in card.results} == {Verdict.PASS}, card.results


def try_cheats(trials):
    """Return the scorecard of each cheat. Trials mostly wait, so twelve run at once."""

    def try_cheat(trial):
        how, names = trial
        return run([*CHEAT, how], names, proxy=how in WITH_NAMES)

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(try_cheat, trials))


def names_of(results):
    return [result.scenario.name for result in results]


#: Cheats that break one rule in one form have the name of the scenario that they fail. They pass
#: the scenarios of the same kind, which stand beside it.
ONE_FORM = [
    ["list-expired"],
    ["list-cut", "list-error"],
    ["pacing-after-restart", "hold-after-restart"],
    ["crawl-delay-redirect", "crawl-delay-retry", "crawl-delay-conditional", "page-crawl-delay"],
    ["second-hop-host", "second-hop-scheme", "second-hop-port"],
    ["opted-out-hop-host", "opted-out-hop-scheme", "opted-out-hop-port"],
    ["crawl-delay-hop-host", "crawl-delay-hop-scheme", "crawl-delay-hop-port"],
    ["crawl-delay-comment", "crawl-delay-case", "crawl-delay-largest"],
    ["hold-of-scheme", "hold-of-port"],
    ["429-behind-redirect", "503-behind-redirect"],
    ["429-seconds", "503-seconds"],
    ["robots-429", "robots-503"],
    ["robots-error", "robots-reset", "robots-silent"],
    ["robots-far", "robots-compressed"],
    ["end-without-wildcard", "literal-query", "empty-line"],
    ["page-denied", "page-opted-out"],
    ["redirect-retry-after"],
    ["no-parts-of-atom"],
    ["long-hold-503"],
    ["list-changed"],
    ["opted-out-case"],
]


@pytest.mark.crawl
@pytest.mark.long
def test_a_crawler_that_breaks_a_rule_in_one_form_fails_it():
    trials = [(how, kind) for kind in ONE_FORM for how in kind]
    cards = try_cheats(trials)
    failed = [names_of(card.having(Verdict.FAIL)) for card in cards]
    assert failed == [[how] for how, _ in trials]


#: What is no crawl of feeds, or not by the rules that apply to every crawler.
ALWAYS_CHEATING = [
    *("one-robots", "ten-requests", "first-host", "browser", "follows-entries", "images"),
    *("no-robots-later", "two-names", "page-first", "hasty", "as-anybody"),
]


@pytest.mark.crawl
@pytest.mark.long
def test_a_crawler_that_cheats_does_not_pass():
    cards = try_cheats([(how, UNAVOIDABLE) for how in ALWAYS_CHEATING])
    judged = dict(zip(ALWAYS_CHEATING, cards, strict=True))
    assert [how for how, card in judged.items() if not card.failed and not card.not_shown] == []
    assert [how for how, card in judged.items() if card.keeps_what_was_tried] == []


#: Cheats that are polite only where they expect a look: what is tried, and the scenario that fails.
#: `honest.py`, on which they are built, passes all of these.
CHEATING_THE_TEST = [
    ("fast-https", ["robots-of-each-scheme", "one-a-second"], "one-a-second"),
    ("fast-later", ["robots-kept", "one-a-second"], "one-a-second"),
    ("fast-at-ports", ["robots-of-each-port", "one-a-second"], "one-a-second"),
    ("idle", ["one-a-second", "one-connection"], "one-connection"),
    ("idle", ["one-a-second", "serial"], "serial"),
    ("at-once-again", ["no-answer"], "no-answer"),
    ("four-at-once", ["no-answer"], "no-answer"),
    ("holds-of-origins", ["hold-of-scheme"], "hold-of-scheme"),
    ("holds-of-origins", ["hold-of-port"], "hold-of-port"),
    ("list-of-others", ["list-retained"], "list-retained"),
    ("list-cleared", ["list-retained"], "list-retained"),
]


@pytest.mark.crawl
@pytest.mark.long
def test_a_crawler_that_cheats_the_test_does_not_pass():
    cards = try_cheats([(how, names) for how, names, _ in CHEATING_THE_TEST])
    for (how, names, failed), card in zip(CHEATING_THE_TEST, cards, strict=True):
        assert failed in names_of(card.failed), (how, names, card.results)
        assert not card.keeps_what_was_tried, (how, names)


@pytest.mark.crawl
def test_what_a_command_leaves_behind_is_ended_and_counted(tmp_path):
    card = run([*CHEAT, "daemon", str(tmp_path / "pids")], ["robots-first"])
    assert card.calls[0].daemons == 1
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            pytest.fail(f"process {pid} still runs")
    assert not list(Path.cwd().glob("nohup.out"))


@pytest.mark.crawl
def test_the_end_of_the_output_of_a_command_is_kept():
    card = run([*CHEAT, "floods"], ["robots-first"])
    assert card.output.endswith("the end\n")
    assert len(card.output) <= 4000


@pytest.mark.crawl
def test_a_command_that_was_killed_says_so():
    card = run([*CHEAT, "kills-itself"], ["robots-first"])
    assert card.calls[0].exit_status == -signal.SIGKILL
