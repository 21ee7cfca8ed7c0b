"""A 502, 503 or 504 over http through a proxy: the site's, the proxy's, or nobody knows (29)."""

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.helpers.sites import (
    IDENTITY,
    blamed_hosts,
    critical_line,
    feeds,
    paths,
    rows_of,
    site,
)
from tests.helpers.squid import OWN, Squid
from walsh_scrapy.testing.web import Certificate, Fault, Reply, Site

QUICK = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.5, "RETRY_TIMES": 0}
MANY = [f"h{number}" for number in range(6)]
#: Words that would blame the operator's side to the owner of a site.
BLAME = ("proxy", "machine", "offline", "network", "127.0.0.1:")


def outcomes(result):
    return dict(rows_of(result, "SELECT url, outcome FROM sources"))


def holds(result):
    return rows_of(
        result, "SELECT host, hold_by, hold_status FROM hosts WHERE hold_until ORDER BY 1"
    )


def assert_nobodys_failure(result):
    """The run ended as trouble of this machine, and left nothing behind."""
    assert critical_line(result)
    assert result.stats["finish_reason"] == "machine_trouble"
    assert blamed_hosts(result) == []
    assert outcomes(result) == {}
    assert rows_of(result, "SELECT * FROM robots WHERE failing_since > 0") == []
    assert rows_of(result, "SELECT DISTINCT status, hold FROM requests") == [(None, 0.0)]


# ---- a site that answers such a status itself ----


@pytest.fixture(scope="module")
def lone(tmp_path_factory, pytestconfig, crawl_launcher):
    """Four starts with one source, whose robots.txt always answers 503."""
    from walsh_scrapy.testing.crawl import run_crawl
    from walsh_scrapy.testing.web import LoopbackWeb

    folder = tmp_path_factory.mktemp("lone")
    with LoopbackWeb(site("blog.example", robots=Reply(status=503))) as web:
        return [
            run_crawl(
                web,
                "feeds",
                folder=folder,
                project=pytestconfig.rootpath,
                launcher=crawl_launcher,
                sources=feeds("blog"),
                settings=QUICK,
            )
            for _ in range(4)
        ]


def test_a_site_whose_robots_txt_is_busy_ends_no_run(lone):
    assert [(run.exit_code, run.stats["finish_reason"]) for run in lone] == [(0, "finished")] * 4
    assert not any("CRITICAL" in run.stderr for run in lone)


def test_a_busy_robots_txt_is_requested_again_after_its_hold(lone):
    """In the next runs the copy of the first one counts for an hour (decision 12)."""
    log = [hit for run in lone for hit in run.log]
    assert [hit.path for hit in log] == ["/robots.txt", "/robots.txt", "/feed"]
    assert log[1].started - log[0].ended >= 1.0
    assert log[2].started - log[1].ended >= 1.0, "the second hold began at 1 s"
    assert paths(lone[0].log) == ["blog.example/robots.txt"] * 2, "deferred for the first run"


def test_a_letter_about_a_busy_site_blames_nobody(lone, run_command):
    state = {"WALSH_STATE_URL": f"sqlite:///{lone[0].folder.parent}/walsh.sqlite3"}
    letter = run_command("why", "blog.example", settings=state).stdout
    assert letter.count(" 503 ") >= 2
    hosts = run_command("hosts", settings=state).stdout
    for word in BLAME:
        assert word not in letter.lower()
        assert word not in hosts.lower()
    attest = run_command("attest", settings=state)
    assert attest.returncode == 0
    assert "5\tholds" in attest.stdout


@pytest.mark.parametrize("status", [502, 504])
def test_a_busy_page_puts_its_host_on_hold(loopback_web, crawl, status):
    """Another page of the host is left to a later run."""
    busy = Reply(status=status)
    web = loopback_web(site("blog.example", feed=busy, other=busy))
    sources = feeds("blog") + feeds("blog", path="other")
    result = crawl(web, sources=sources, settings=QUICK)
    assert result.stats["finish_reason"] == "finished"
    assert len({hit.path for hit in result.log} - {"/robots.txt"}) == 1
    assert holds(result) == [("blog.example", "backoff", status)]
    assert not any(word in result.stderr.lower() for word in BLAME[:3])


@pytest.mark.parametrize("status", [502, 504])
def test_such_a_page_is_requested_once_a_run(loopback_web, crawl, status):
    web = loopback_web(site("blog.example", feed=Reply(status=status)))
    settings = QUICK | {"RETRY_TIMES": 2}
    result = crawl(web, sources=feeds("blog"), settings=settings)
    assert paths(result.log) == ["blog.example/robots.txt", "blog.example/feed"]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_busy_host_beside_others_is_the_sites_trouble(loopback_web, crawl, status):
    web = loopback_web(
        site("busy.example", robots=Reply(status=status), feed=Reply(status=status)),
        *(site(f"{name}.example") for name in MANY),
    )
    result = crawl(web, sources=feeds("busy", *MANY), settings=QUICK)
    assert result.exit_code == 0
    assert result.stats["walsh/sources/fetched"] == len(MANY)
    assert holds(result) == [("busy.example", "backoff", status)]
    assert set(paths(result.log, "busy.example")) == {"busy.example/robots.txt"}


@pytest.mark.parametrize("own", [{}, OWN], ids=["site", "proxy"])
def test_a_retry_after_is_always_the_sites(loopback_web, crawl, own):
    later = Reply(status=503, headers={"Retry-After": "3600"} | own)
    web = loopback_web(*(site(f"{name}.example", robots=later) for name in MANY))
    result = crawl(web, sources=feeds(*MANY), settings=QUICK)
    assert result.stats["finish_reason"] == "finished"
    assert holds(result) == [(f"{name}.example", "retry-after", 503) for name in MANY]


# ---- a proxy that answers itself ----


@pytest.fixture
def web(loopback_web):
    secure = [replace(site(f"s{name}.example"), tls=Certificate.GOOD) for name in MANY]
    return loopback_web(*(site(f"{name}.example") for name in MANY), *secure)


def secure_feeds(*names):
    return [url.replace("http://", "https://s") for url in feeds(*names)]


@pytest.mark.parametrize(
    "own",
    [OWN, {"Proxy-Status": 'gate; error=dns_error; rcode="NXDOMAIN"'}, {"Proxy-Agent": "gate/1"}],
    ids=["squid", "proxy-status", "proxy-agent"],
)
@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_host_that_the_proxy_does_not_reach_fails_alone(web, crawl, own, status):
    with Squid(web, dead={"dead.example"}, own=own, status=status) as squid:
        environment = squid.environment
        sources = feeds("dead", *MANY)
        result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert result.exit_code == 0
    assert len(squid.asked) <= 2
    assert sorted(outcomes(result).values()) == ["failed", *["fetched"] * len(MANY)]
    assert holds(result) == []
    assert blamed_hosts(result) == []
    logged = rows_of(result, "SELECT DISTINCT status FROM requests WHERE host = 'dead.example'")
    assert logged == [(None,)]


def test_a_letter_names_an_unreached_host_as_one_without_answer(web, crawl, on_state):
    with Squid(web, dead={"dead.example"}) as squid:
        environment = squid.environment
        crawl(web, sources=feeds("dead", "h0"), settings=QUICK, environment=environment)
    assert "no answer" in on_state("why", "dead.example").stdout
    assert "5\tnot shown" in on_state("attest").stdout


def test_a_lone_host_that_the_proxy_does_not_reach_has_failed(web, crawl):
    with Squid(web, dead={"dead.example"}) as squid:
        environment = squid.environment
        result = crawl(web, sources=feeds("dead"), settings=QUICK, environment=environment)
    assert result.stats["finish_reason"] == "finished"
    assert outcomes(result) == {feeds("dead")[0]: "failed"}
    assert blamed_hosts(result) == []


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("own", [{}, OWN], ids=["nobody", "proxy"])
def test_a_proxy_without_a_network_is_nobodys_failure(web, crawl, own, status):
    """Five hosts decide, whether the proxy says that it answers itself or not."""
    with Squid(web, is_down=True, own=own, status=status) as squid:
        environment = squid.environment
        result = crawl(web, sources=feeds(*MANY), settings=QUICK, environment=environment)
    assert_nobodys_failure(result)
    assert len(squid.asked) == len(set(squid.asked)) == 5


@pytest.mark.parametrize("own", [{}, OWN], ids=["nobody", "proxy"])
def test_what_was_known_before_an_outage_is_as_it_was(web, crawl, again, own):
    """Pages fail here, because robots.txt is known; the next run reads all."""
    sources = feeds(*MANY)
    with Squid(web, own=own) as squid:
        environment = squid.environment
        options = {"sources": sources, "settings": QUICK, "environment": environment}
        assert crawl(web, **options).exit_code == 0
        squid.is_down = True
        squid.status = 502
        before = rows_of(crawl, "SELECT * FROM robots ORDER BY origin")
        result = again(web, **options)
        assert critical_line(result)
        assert blamed_hosts(result) == []
        assert set(outcomes(result).values()) == {"fetched"}
        assert rows_of(crawl, "SELECT * FROM robots ORDER BY origin") == before
        squid.is_down = False
        last = again(web, **options)
    assert last.stats["walsh/sources/fetched"] + last.stats.get("walsh/sources/unchanged", 0) == 6


@pytest.mark.parametrize("status", [502, 503])
def test_a_robots_txt_that_was_given_up_is_taken_back(web, crawl, again, status):
    """Without retries each file has failed before the fifth host decides."""
    identity = {name: IDENTITY[name] for name in ("WALSH_USER_AGENT", "WALSH_UA_TOKEN")}
    settings = QUICK | identity | {"WALSH_MAX_RETRIES": 0, "WALSH_ROBOTS_TTL": 1}
    with Squid(web, own={}, status=status) as squid:
        options = {"settings": settings, "environment": squid.environment}
        assert crawl(web, sources=feeds(*MANY[:3]), **options).exit_code == 0
        copies = "SELECT origin, status, failing_since FROM robots ORDER BY origin"
        before = rows_of(crawl, copies)
        squid.is_down = True
        result = again(web, sources=feeds(*MANY), **options)
    assert critical_line(result)
    assert blamed_hosts(result) == []
    assert rows_of(crawl, copies) == before
    assert outcomes(result) == dict.fromkeys(feeds(*MANY[:3]), "fetched")


def test_what_was_taken_back_is_no_finding(web, crawl, on_state):
    with Squid(web, is_down=True, own={}) as squid:
        environment = squid.environment
        options = {"settings": QUICK, "environment": environment}
        crawl(web, sources=feeds(*MANY), **options)
        squid.is_down = False
        assert crawl(web, sources=feeds(*MANY), **options).exit_code == 0
    assert on_state("attest").returncode == 0
    letter = on_state("why", "h0.example").stdout
    assert "no answer" in letter
    assert "on hold" not in letter


def test_hosts_count_and_not_their_urls(web, crawl):
    with Squid(web, is_down=True, own={}) as squid:
        environment = squid.environment
        paths = [f"p{number}" for number in range(6)]
        sources = [url for path in paths for url in feeds("h0", path=path)]
        result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert result.stats["finish_reason"] == "finished"
    assert holds(result) == [("h0.example", "backoff", 503)]


def test_a_proxy_whose_tunnels_work_reaches_hosts(web, crawl):
    """Over http it answers 503 for all hosts, but CONNECT has shown that it has a network."""
    names = {f"{name}.example" for name in MANY}
    with Squid(web, dead=names, own={}) as squid:
        environment = squid.environment
        sources = feeds(*MANY[:4]) + secure_feeds(*MANY)
        result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert result.stats["finish_reason"] == "finished"
    assert result.stats["walsh/sources/fetched"] == 6
    assert [host for host, _, _ in holds(result)] == sorted(names)[:4]


def test_tunnels_count_with_other_requests_of_a_proxy(web, crawl):
    with Squid(web, is_down=True, own={}) as squid:
        environment = squid.environment
        sources = feeds(*MANY[:3]) + secure_feeds(*MANY[:3])
        result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert_nobodys_failure(result)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_tunnel_or_a_page_that_the_proxy_forbids_is_a_failure(web, crawl, scheme):
    with Squid(web, dead={"h0.example", "sh0.example"}, status=403, own=OWN) as squid:
        environment = squid.environment
        sources = feeds("h0") if scheme == "http" else secure_feeds("h0")
        result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert result.stats["finish_reason"] == "finished"
    assert outcomes(result) == {sources[0]: "failed"}
    assert blamed_hosts(result) == []


# ---- another proxy than ours: the package proxy.py ----


#: Serves until its input ends, and prints the port at which it does.
PROXY = """
import sys

from proxy import Proxy

words = "--hostname 127.0.0.1 --port 0 --num-workers 1 --num-acceptors 1 --log-level e"
with Proxy([*words.split(), "--data-dir", sys.argv[1]]) as proxy:
    print(proxy.flags.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def forward_proxy(direct_web, tmp_path):
    """Return a function that starts proxy.py in front of sites.

    It returns the web of these, and the environment of a user of the proxy.
    """
    with ExitStack() as stack:

        def start(*sites):
            web = direct_web(*sites)
            command = [sys.executable, "-c", PROXY, str(tmp_path / "proxy")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            environment = os.environ | web.environment
            process = stack.enter_context(subprocess.Popen(command, env=environment, **pipes))
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            return web, {"http_proxy": url, "https_proxy": url}

        yield start


def test_sites_through_a_proxy_of_others(forward_proxy, crawl):
    """Sites of http and https, one that is busy, and one that nobody knows."""
    web, environment = forward_proxy(
        site("h0.example"),
        replace(site("sh0.example"), tls=Certificate.GOOD),
        site("busy.example", robots=Reply(status=503)),
        Site("breaks.example", "", {"/feed": Reply(fault=Fault.CLOSE)}),
    )
    plain = feeds("h0", "busy", "dead", "breaks")
    sources = [*plain, *secure_feeds("h0"), "https://sdead.example/feed"]
    result = crawl(web, sources=sources, settings=QUICK, environment=environment)
    assert all(hit.status != 421 for hit in web.log), "each came to the host that it names"
    assert result.exit_code == 0
    assert holds(result) == [("busy.example", "backoff", 503)]
    ends = outcomes(result)
    assert ends[plain[0]] == ends["https://sh0.example/feed"] == "fetched"
    assert ends[feeds("dead")[0]] == ends[feeds("breaks")[0]] == "failed"
    unreachable = rows_of(result, "SELECT host FROM hosts WHERE unreachable")
    assert unreachable == []
