"""`walsh mayfetch` on a web: the answer of every gate and why, by the same gates as a crawl."""

import contextlib
import json
import time

import pytest

from tests.helpers.records import commit
from tests.helpers.sites import LIST_URL, blocklist, paths, site
from walsh_scrapy import Denied, RequestDeferred
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

ROBOTS = "User-agent: *\nDisallow: /private/ # ours\nAllow: /private/open\nCrawl-delay: 2\n"

#: An epoch second: 2100-01-01.
LATER = 4_102_444_800.0


class StaffGate:
    """A project's own gate, as docs/reuse.md has one."""

    async def process_request(self, request):
        if "/staff/" in request.url:
            raise Denied("office", "no robots, please")
        if "/closed/" in request.url:
            raise RequestDeferred(LATER, "in office hours")
        if "/broken/" in request.url:
            raise ZeroDivisionError("of the project")


class ClosedGate:
    """A gate behind that of robots.txt, which it keeps from being asked for too."""

    async def process_request(self, request):
        if "//closed.example/" in request.url:
            raise Denied("office", "closed for robots")


GATES = json.dumps({f"{StaffGate.__module__}.StaffGate": 50})


@pytest.fixture
def ask(tmp_path, run_command):
    """Run `walsh mayfetch` in front of a web, with a state of its own."""

    def run(web, *arguments, **settings):
        url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
        test_settings = {"WALSH_STATE_URL": url, "WALSH_BLOCKLIST_SCHEMA_URL": ""} | settings
        keep_empty_blocklist(url)
        return run_command(
            "mayfetch", *arguments, settings=test_settings, environment=web.environment
        )

    return run


def test_answer_names_the_line_and_fetches_only_robots_txt(loopback_web, ask):
    web = loopback_web(
        site("blog.example", ROBOTS),
        site("optedout.example"),
        Site("operator.example", pages={"/blocklist.json": blocklist("optedout.example")}),
    )
    urls = [
        "http://blog.example/private/page",
        "http://blog.example/private/open/page",
        "http://blog.example/feed",
        "http://www.optedout.example/feed",
    ]
    result = ask(web, *urls, "--json", WALSH_BLOCKLIST_URL=LIST_URL)
    assert result.returncode == 1, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["allowed"] for answer in answers] == [False, True, True, False]
    assert [answer["gate"] for answer in answers] == ["robots", None, None, "blocklist"]
    private, opened, _, optedout = answers
    assert (private["robots"]["rule"], private["robots"]["line"]) == ("Disallow: /private/", 2)
    assert (opened["robots"]["rule"], opened["robots"]["line"]) == ("Allow: /private/open", 3)
    assert (private["robots"]["group"], private["robots"]["group_lines"]) == ("*", [1])
    assert (private["robots"]["status"], private["robots"]["crawl_delay"]) == (200, 2.0)
    assert private["delay"] == 2.0
    assert private["next_request_at"].endswith("Z")
    assert optedout["robots"] is None
    assert sorted(paths(web.log)) == [
        "blog.example/robots.txt",
        "operator.example/blocklist.json",
        "operator.example/robots.txt",
    ]
    assert_polite(web.log, blocked=["optedout.example"], robots_exempt=[LIST_URL])


def test_offline_it_answers_from_the_state_or_not_at_all(loopback_web, ask):
    web = loopback_web(site("blog.example", ROBOTS))
    unknown = ask(web, "--offline", "http://blog.example/feed")
    assert unknown.returncode == 1
    assert "undecided" in unknown.stdout
    assert "http://blog.example/robots.txt" in unknown.stdout
    for _ in range(2):
        assert ask(web, "http://blog.example/feed").returncode == 0
    known = ask(web, "--offline", "http://blog.example/feed")
    assert known.returncode == 0
    assert "http://blog.example/robots.txt, 200, " in known.stdout
    assert paths(web.log) == ["blog.example/robots.txt"], "a second call sends no request"


def test_deferral_by_an_unreachable_robots_txt_is_no_denial(loopback_web, ask):
    web = loopback_web(site("error.example", Reply(status=500)))
    quick = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.1}
    result = ask(
        web, "--json", "http://error.example/feed", WALSH_ROBOTS_UNREACHABLE="phased", **quick
    )
    answer = json.loads(result.stdout)
    assert answer["allowed"] is None
    assert answer["gate"] == "robots"
    assert "it answered 500" in answer["reason"]
    assert "/feed" not in [hit.path for hit in web.log]


def test_a_host_on_hold_is_not_waited_for(loopback_web, ask):
    busy = Reply(status=429, headers={"Retry-After": "3600"})
    web = loopback_web(site("busy.example", busy))
    result = ask(web, "http://busy.example/feed")
    assert result.returncode == 1
    assert "on hold until 20" in result.stdout


def test_a_source_that_is_not_due_may_be_fetched(loopback_web, ask, tmp_path):
    web = loopback_web(site("blog.example"))
    url = "http://blog.example/feed"
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        now = time.time()
        commit(state, SourceRecord(url=url, kind="feed", visited_at=now, not_before=now + 86_400.0))
    result = ask(web, url)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("online", [True, False])
def test_an_argument_that_is_no_url_gives_an_answer(loopback_web, ask, online):
    options = [] if online else ["--offline"]
    arguments = [
        "mailto:me@example.com",
        "http://[bad",
        "//x",
        "blog.example/feed",
        "ftp://x.example/",
    ]
    web = loopback_web()
    result = ask(web, *options, *arguments)
    assert (result.returncode, web.log) == (1, [])
    assert result.stdout.count("undecided") == 5
    assert result.stdout.count("write https://blog.example/feed") == 1
    assert "Traceback" not in result.stderr


def test_every_spelling_of_a_url_is_asked_for(loopback_web, ask):
    web = loopback_web(site("blog.example", ROBOTS), site("xn--bcher-kva.example"))
    urls = ["http://Blog.example/a b", "http://bücher.example/ä", "http://blog.example/%7ex|y#z"]
    assert ask(web, *urls).returncode == 0
    assert len(web.log) == 2


def test_last_copy_of_the_blocklist_is_used_as_in_a_crawl(loopback_web, ask):
    web = loopback_web(
        site("blog.example"), Site("operator.example", pages={"/blocklist.json": Reply(status=404)})
    )
    result = ask(web, "http://blog.example/feed", WALSH_BLOCKLIST_URL=LIST_URL)
    assert result.returncode == 0
    assert "last copy of the blocklist" in result.stdout


@pytest.mark.parametrize("options", [[], ["--offline"]])
def test_idle_host_may_be_requested_now(loopback_web, ask, tmp_path, options):
    """However long the probe takes, which asks nothing of a host that is blocked."""
    (tmp_path / "own.txt").write_text("optedout.example\n")
    web = loopback_web(site("optedout.example"))
    settings = {"WALSH_BLOCKLIST_FILE": str(tmp_path / "own.txt")}
    answer = ask(web, *options, "http://optedout.example/feed", **settings)
    assert answer.stdout.endswith("; next now\n")
    assert web.log == []


@pytest.fixture
def library(loopback_web):
    """A web with one host, which the gates of the project are about."""
    return loopback_web(site("library.example", "User-agent: *\nDisallow: /private/\n"))


def test_gate_of_the_project_decides(library, ask):
    paths_asked = ("staff/1", "closed/1", "broken/1", "private/1", "feed")
    urls = [f"http://library.example/{path}" for path in paths_asked]
    result = ask(library, "--json", *urls, DOWNLOADER_MIDDLEWARES=GATES)
    assert result.returncode == 1, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(answer["allowed"], answer["gate"]) for answer in answers] == [
        (False, "office"), (True, None), (None, "project"), (False, "robots"), (True, None),
    ]  # fmt: skip
    staff, closed, broken, _, feed = answers
    assert staff["reason"] == "no robots, please"
    assert closed["allowed_from"] == "2100-01-01T00:00:00Z"
    assert "in office hours" in closed["reason"]
    assert "of the project" in broken["reason"]
    assert feed["allowed_from"] is None


def test_question_to_a_gate_records_no_denial(library, ask, tmp_path):
    urls = ["http://library.example/staff/1", "http://library.example/feed"]
    ask(library, *urls, DOWNLOADER_MIDDLEWARES=GATES)
    assert paths(library.log) == ["library.example/robots.txt"]
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        assert list(state.rows("readable_denials")) == []


def test_gate_behind_robots_txt_denies_too(library, ask):
    late = json.dumps({f"{StaffGate.__module__}.ClosedGate": 110})
    closed = ask(library, "http://closed.example/feed", DOWNLOADER_MIDDLEWARES=late)
    assert closed.stdout.startswith("http://closed.example/feed: denied by office\n")
    assert "closed for robots" in closed.stdout


def test_answer_of_a_gate_is_printed(library, ask):
    urls = ["http://library.example/staff/1", "http://library.example/closed/1"]
    answer = ask(library, *urls, DOWNLOADER_MIDDLEWARES=GATES).stdout
    assert answer.startswith(f"{urls[0]}: denied by office\n")
    assert "  office     no robots, please\n" in answer
    assert f"{urls[1]}: allowed from 2100-01-01" in answer
