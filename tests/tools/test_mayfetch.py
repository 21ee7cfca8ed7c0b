"""`scrapy mayfetch`: every gate's answer and why, by the same gates and slots as a crawl."""

import contextlib
import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.helpers.sites import LIST_URL, blocklist, paths, site
from walsh_scrapy import Denied, RequestDeferred
from walsh_scrapy.console.program import main
from walsh_scrapy.state import State
from walsh_scrapy.state.log import TimeSpan
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
            raise Denied("office", "library.example wants no robot on its staff pages")
        if "/closed/" in request.url:
            raise RequestDeferred(LATER, "library.example is in its office hours")
        if "/broken/" in request.url:
            raise ZeroDivisionError("of the project")


class ClosedGate:
    """A gate behind that of robots.txt, which it keeps from being asked for too."""

    async def process_request(self, request):
        if "//closed.example/" in request.url:
            raise Denied("office", "closed.example wants no robot")


GATES = json.dumps({f"{StaffGate.__module__}.StaffGate": 50})


@pytest.fixture
def ask(tmp_path, run_scrapy):
    """Run `scrapy mayfetch` in front of a web, with a state of its own."""

    def run(web, *arguments, stdin="", **settings):
        given = {
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / 'state.sqlite3'}",
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        } | settings
        keep_empty_blocklist(given["WALSH_STATE_URL"])
        environment = web.environment if web else {}
        return run_scrapy(
            "mayfetch", *arguments, settings=given, environment=environment, stdin=stdin
        )

    return run


def test_the_answer_names_the_deciding_line_and_only_robots_txt_is_fetched(loopback_web, ask):
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
    assert unknown.returncode == 2
    assert "cannot say" in unknown.stdout
    for _ in range(2):
        assert ask(web, "http://blog.example/feed").returncode == 0
    known = ask(web, "--offline", "http://blog.example/feed")
    assert known.returncode == 0
    assert "blog.example:80/robots.txt, 200, " in known.stdout
    assert paths(web.log) == ["blog.example/robots.txt"], "a second call sends no request"


def test_a_file_can_be_tried_before_it_is_deployed(ask, tmp_path):
    file = tmp_path / "robots.txt"
    file.write_text(ROBOTS + "Comment: be brief\nCrawl-delay: soon\n")
    denied = ask(None, "--robots", str(file), "https://blog.example/private/")
    assert denied.returncode == 1
    for said in ("line 2 ", "Disallow: /private/", "be brief", "line 6", "every 2 s"):
        assert said in denied.stdout
    opening = (datetime.now(UTC) + timedelta(hours=3)).strftime("%H%M")
    closed = f"{ROBOTS}Allow: /a?b\nDisallow: /a\nVisit-time: {opening}-{opening}\n"
    url = "https://blog.example/a%3Fb"
    piped = ask(None, "--robots", "-", "https://blog.example/feed", url, stdin=closed)
    assert piped.returncode == 1
    assert piped.stdout.startswith("https://blog.example/feed: allowed from 20")
    assert "Protego, the parser of Scrapy, would answer: allowed" in piped.stdout.partition(url)[2]


def test_without_a_usable_robots_txt_the_answer_names_the_policy(loopback_web, ask):
    web = loopback_web(site("blog.example", Reply(status=500)))
    result = ask(
        web,
        "http://blog.example/feed",
        WALSH_MAX_RETRIES=1,
        WALSH_BACKOFF_BASE=0.01,
        WALSH_ROBOTS_UNREACHABLE="disallow",
    )
    assert result.returncode == 1
    assert (
        "robots.txt answered 500, and WALSH_ROBOTS_UNREACHABLE decides: everything is denied"
        in result.stdout
    )


def test_a_host_on_hold_is_not_waited_for(loopback_web, ask):
    busy = Reply(status=429, headers={"Retry-After": "3600"})
    web = loopback_web(site("busy.example", busy))
    result = ask(web, "http://busy.example/feed")
    assert result.returncode == 2
    assert "on hold until 20" in result.stdout


@pytest.mark.parametrize("online", [True, False])
def test_an_argument_that_is_no_url_gives_an_answer(loopback_web, ask, online):
    options = [] if online else ["--offline"]
    given = ["mailto:me@example.com", "http://[bad", "//x", "blog.example/feed"]
    result = ask(loopback_web(), *options, *given)
    assert result.returncode == 2
    assert result.stdout.count("cannot say") == 4
    assert result.stdout.count("write https://blog.example/feed") == 1
    assert "Traceback" not in result.stderr


def test_only_the_web_is_asked_for_and_every_spelling_of_it(loopback_web, ask):
    web = loopback_web(site("blog.example", ROBOTS), site("xn--bcher-kva.example"))
    ftp = ask(web, "ftp://blog.example/feed")
    assert ftp.returncode == 2
    assert web.log == []
    urls = [
        "http://Blog.example/a b",
        "http://b\u00fccher.example/\u00e4",
        "http://blog.example/%7ex|y#z",
    ]
    assert ask(web, *urls).returncode == 0
    assert len(web.log) == 2


def test_the_last_blocklist_counts_as_in_a_crawl(loopback_web, ask):
    web = loopback_web(
        site("blog.example"), Site("operator.example", pages={"/blocklist.json": Reply(status=404)})
    )
    result = ask(web, "http://blog.example/feed", WALSH_BLOCKLIST_URL=LIST_URL)
    assert result.returncode == 0
    assert "not in the last copy of the list" in result.stdout


def test_a_gate_of_the_project_is_asked_and_no_probe_is_recorded(loopback_web, ask, tmp_path):
    web = loopback_web(site("library.example", "User-agent: *\nDisallow: /private/\n"))
    paths_asked = ("staff/1", "closed/1", "broken/1", "private/1", "feed")
    urls = [f"http://library.example/{path}" for path in paths_asked]
    result = ask(web, "--json", *urls, DOWNLOADER_MIDDLEWARES=GATES)
    assert result.returncode == 1, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["allowed"], each["gate"]) for each in answers] == [
        (False, "office"), (True, None), (None, "project"), (False, "robots"), (True, None),
    ]  # fmt: skip
    staff, closed, broken, _, feed = answers
    assert staff["why"] == "library.example wants no robot on its staff pages"
    assert closed["allowed_from"] == "2100-01-01T00:00:00Z"
    assert "is in its office hours" in closed["why"]
    assert "of the project" in broken["why"]
    assert feed["allowed_from"] is None
    assert paths(web.log) == ["library.example/robots.txt"]
    with (
        contextlib.closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state,
        state.log() as log,
    ):
        assert list(log.denials(TimeSpan(), "library.example")) == []
    late = json.dumps({f"{StaffGate.__module__}.ClosedGate": 110})
    closed = ask(web, "http://closed.example/feed", DOWNLOADER_MIDDLEWARES=late)
    assert closed.stdout.startswith("http://closed.example/feed: denied by robots\n")
    assert "closed.example wants no robot" in closed.stdout
    told = ask(web, *urls[:2], DOWNLOADER_MIDDLEWARES=GATES)
    assert told.stdout.startswith(f"{urls[0]}: denied by office\n")
    assert "  office     library.example wants no robot on its staff pages\n" in told.stdout
    assert f"{urls[1]}: allowed from 2100-01-01 00:00:00 UTC\n" in told.stdout


def test_both_programs_say_the_same_of_a_file(ask, tmp_path, capsys):
    file = tmp_path / "robots.txt"
    file.write_text(ROBOTS)
    given = ["--robots", str(file), "--user-agent", "Some-Bot", "https://blog.example/private/"]
    theirs = ask(None, *given)
    with pytest.raises(SystemExit) as ended:
        main(["mayfetch", *given])
    assert (ended.value.code, capsys.readouterr().out) == (theirs.returncode, theirs.stdout)
