"""`walsh why`: the rows of a day, and what a letter never says (decisions 33 and 36)."""

import contextlib
import json
import re
from dataclasses import replace
from functools import partial

import pytest
from scrapy.settings import Settings

from tests.helpers import records
from tests.helpers.records import RECORD, commit, deny, hold, keep_robots, log_requests
from tests.helpers.sites import IDENTITY, feed, site
from walsh_scrapy.feeds.freshness import NEVER
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.forgetting import Target
from walsh_scrapy.identity import USER_AGENT
from walsh_scrapy.options import Options
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import Evidence, hash_of
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.testing.simulation import simulate
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.why import Days, read_account
from walsh_scrapy.tools.why.letter import letter, to_records

DAY = 86_400.0
NOON = 20_000 * DAY + 43_200.0  # of 2024-10-04
RULES = b"User-agent: *\nDisallow: /private\nAllow: /feed\n"
ALLOWED = Evidence("Allow: /feed", 3, hash_of(RULES), NOON, robots_status=200)
FEED = "http://a.example/feed"
SENT = replace(RECORD, requested_at=NOON + 4.0, url=FEED, duration=0.5, run=1, delay=2.0)
SENT = replace(SENT, evidence=ALLOWED)
ROBOTS = replace(SENT, requested_at=NOON, url="http://a.example/robots.txt", duration=1.0)
ROBOTS = replace(ROBOTS, delay=0.0, purpose="robots", evidence=Evidence())
DENIED = Evidence("Disallow: /private", 2, hash_of(RULES), NOON, robots_status=200)
DENIAL = replace(records.DENIAL, denied_at=NOON + 1.0, evidence=DENIED)

#: Sites that share a robots.txt, or have none; two more lead to others, by their own redirects.
SITES = (
    *(site(host, RULES.decode()) for host in ("a.example", "b.example")),
    *(site(host, Reply(status=404)) for host in ("none.example", "no.example")),
    Site("led.example", redirect("http://a.example/robots.txt"), {"/feed": feed()}),
    Site("ill.example", Reply(status=500), {"/feed": feed()}),
    Site("old.example", "", {"/feed": redirect("http://new.example/feed")}),
    Site("new.example", RULES.decode(), {"/feed": feed()}),
    Site("inward.example", "", {"/feed": redirect("http://10.0.0.1/feed")}),
)


def options(**settings):
    return Options.from_settings(Settings({"WALSH_USER_AGENT": USER_AGENT} | settings))


def account_of(state, subject="a.example", day=None, **settings):
    return read_account(state, options(**settings), subject, day and Days(day, day))


def text_of(state, *arguments, **settings):
    return "\n".join(letter(account_of(state, *arguments, **settings)))


def rows_of(state, record, *arguments, **settings):
    rows = to_records(account_of(state, *arguments, **settings))
    return [row for row in rows if row["record"] == record]


def begin_run(state, user_agent, token):
    """Begin a run of a bot, and return its number."""
    settings = {"user_agent": user_agent, "ua_token": token, "blocklist_url": ""}
    return state.runs.begin(RunRecord(spider="feeds", started_at=NOON, settings=settings))


@pytest.fixture
def state(url):
    """A state whose clock says noon and ten seconds."""
    with contextlib.closing(State(url, lambda: NOON + 10.0)) as opened:
        keep_robots(opened, "http://a.example:80", RobotsCopy(NOON, 200, RULES))
        yield opened


@pytest.fixture
def log(state):
    """Write requests into the log."""
    return partial(log_requests, state)


@pytest.fixture
def declare(state, tmp_path):
    """Declare sources, as a crawl does."""

    def sync(*urls):
        (tmp_path / "sources.txt").write_text("".join(f"{url}\n" for url in urls))
        Stores(state).sync(tmp_path / "sources.txt", NOON)

    return sync


@pytest.fixture(scope="module")
def crawled(tmp_path_factory, crawl_launcher, pytestconfig):
    """The state after a crawl of the sites."""
    folder = tmp_path_factory.mktemp("sites")
    simulate(
        *SITES,
        sources=[f"http://{site.host}/feed" for site in SITES if site.host != "new.example"],
        folder=folder,
        settings=IDENTITY | {"WALSH_BLOCKLIST_URL": ""},
        launcher=crawl_launcher,
        project=pytestconfig.rootpath,
    )
    with contextlib.closing(State(f"sqlite:///{folder / 'walsh.sqlite3'}")) as opened:
        yield opened


@pytest.mark.parametrize("host", [*(site.host for site in SITES), "10.0.0.1"])
def test_letter_about_a_site_names_no_other_site(crawled, host):
    """Only its own redirects name others."""
    account = account_of(crawled, host, **IDENTITY)
    assert account.requests
    named = {"led.example": "a.example", "old.example": "new.example"}.get(host)
    pages = ["\n".join(letter(account)), json.dumps(list(to_records(account)))]
    others = {site.host for site in SITES} - {host, named}
    for page in pages:
        assert host in page
        assert not {other for other in others if re.search(rf"\b{other}\b", page)}


def test_a_source_that_moved_here_is_not_named(state, declare):
    declare("http://b.example/feed")
    moved = {"visited_at": NOON, "moved_to": FEED, "move_settled": True, "not_before": NOON}
    commit(state, SourceRecord(url="http://b.example/feed", kind="feed", outcome="ok", **moved))
    declare("http://b.example/feed")
    assert [row["url"] for row in rows_of(state, "source")] == [FEED]
    assert "b.example" not in text_of(state)
    assert f"moved to {FEED}" in text_of(state, "b.example")


def test_the_robots_txt_that_a_redirect_led_to_is_named(crawled):
    (robots,) = rows_of(crawled, "robots", "led.example", **IDENTITY)
    assert robots["url"] == "http://led.example/robots.txt"
    assert robots["redirected_to"] == "http://a.example/robots.txt"
    assert robots["sha256"] == hash_of(RULES)
    rows = rows_of(crawled, "robots", **IDENTITY)
    assert [row["url"] for row in rows] == ["http://a.example/robots.txt"]


def test_a_robots_txt_that_fails_later_is_the_last_good_one(state, log):
    failing = replace(ROBOTS, requested_at=NOON + 100.0, status=503)
    later = replace(ALLOWED, robots_at=NOON + 101.0, robots_status=503)
    log(ROBOTS, SENT, failing, replace(SENT, requested_at=NOON + 110.0, evidence=later))
    first, second = rows_of(state, "robots")
    assert (first["status"], second["status"]) == (200, 503)
    assert "the last good copy" in text_of(state)


@pytest.mark.parametrize(
    ("evidence", "decision"),
    [
        (ALLOWED, "line 3: Allow: /feed"),
        (replace(ALLOWED, rule=None, line=None), "no rule matches"),
        (Evidence(robots=hash_of(b""), robots_at=NOON, robots_status=404), "no robots.txt (404)"),
        (Evidence(robots_at=NOON, robots_status=503), "unreachable (503)"),
        (Evidence(robots_at=NOON), "unreachable (no answer)"),
        (Evidence(), "not checked"),
    ],
)
def test_each_request_has_the_decision_of_robots_txt(state, log, evidence, decision):
    log(replace(SENT, evidence=evidence))
    assert decision in text_of(state)


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (replace(ALLOWED, robots=None), "not recorded"),
        (replace(ALLOWED, robots=None, robots_status=503), "not recorded"),
        (Evidence(robots_at=NOON, robots_status=503), "no file"),
        (Evidence(robots=hash_of(b""), robots_at=NOON, robots_status=404), "no file"),
    ],
)
def test_no_file_is_never_said_beside_a_quoted_line(state, log, evidence, words):
    log(replace(SENT, evidence=evidence))
    assert f"  {words}  http://a.example/robots.txt" in text_of(state)


def test_the_moment_of_the_copy_that_decided_is_shown(state, log):
    failing = replace(ROBOTS, requested_at=NOON + 100.0, status=503)
    later = replace(ALLOWED, robots_at=NOON + 101.0, robots_status=503)
    good = replace(ROBOTS, evidence=replace(ALLOWED, rule=None, line=None))
    log(good, SENT, failing, replace(SENT, requested_at=NOON + 110.0, evidence=later))
    rows = rows_of(state, "robots")
    assert [row["read_at"] for row in rows] == ["2024-10-04T12:00:00Z"] * 2
    text = text_of(state)
    assert "503, so the last good copy was used, of 2024-10-04 12:00:00" in text
    assert "line 3: Allow: /feed (of 12:01:41)" in text, "and which of the two files decided"


def test_a_usual_day_is_a_screen_of_a_hundred_columns(state, log, declare):
    deny(state, DENIAL)
    log(replace(ROBOTS, requested_at=NOON - DAY), ROBOTS, SENT)
    declare(FEED)
    lines = text_of(state).splitlines()
    assert len(lines) <= 32
    assert [line for line in lines if len(line) > 100 and hash_of(RULES) not in line] == []


def test_gap_starts_at_the_last_request_of_the_day_before(state, log):
    log(replace(SENT, requested_at=NOON - DAY, duration=3.0), SENT)
    (sent,) = rows_of(state, "request", FEED)
    assert sent["gap"] == pytest.approx(DAY + 1.0)
    (first,) = rows_of(state, "request", "a.example", "2024-10-03")
    assert (first["gap"], first["gap_unknown"]) == (None, "no earlier request")


def test_released_hold_is_shown_with_time_and_reason(state, log):
    hold(state, "a.example", 7200.0)
    state.hosts.release("a.example", "mail of 3 May")
    log(replace(SENT, status=503, hold=7200.0), replace(SENT, requested_at=NOON + 20.0))
    _, second = rows_of(state, "request")
    assert (second["problem"], second["released_at"]) == (None, "2024-10-04T12:00:10Z")
    (override,) = rows_of(state, "override")
    assert override["reason"] == "mail of 3 May"
    assert "mail of 3 May" in text_of(state)


def test_a_released_hold_is_no_wait_for_later_requests(state, log):
    hold(state, "a.example", 7200.0)
    state.hosts.release("a.example", "mail of 3 May")
    log(
        replace(SENT, status=503, hold=7200.0),
        replace(SENT, requested_at=NOON + 20.0),
        replace(SENT, requested_at=NOON + 30.0),
    )
    first, second, third = rows_of(state, "request")
    assert first["hold_ended_at"] == second["released_at"] == "2024-10-04T12:00:10Z"
    assert (third["hold_until"], third["hold_request"], third["released_at"]) == (None, None, None)
    assert text_of(state).count("on hold until") == 1
    assert "on hold until 12:00:10, because of the 503" in text_of(state)


def test_the_end_of_a_hold_by_hand_is_said_before_any_request(state, log):
    hold(state, "a.example", 7200.0)
    state.hosts.release("a.example", "mail of 3 May")
    log(replace(SENT, status=503, hold=7200.0))
    assert "then on hold for 2 h; the operator ended that at 12:00:10" in text_of(state)


VISITS = b"User-agent: *\nVisit-time: 0600-0845\n"


def test_the_next_visit_waits_for_the_visit_time(state, declare):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, VISITS))
    declare(FEED)
    (visit,) = rows_of(state, "source")
    assert visit["next_visit"] == "2024-10-05T06:00:00Z"
    assert "Visit-time" in visit["due_reason"]
    assert "now" not in text_of(state).partition("What comes next")[2].split()


def test_the_next_visit_in_the_visit_time_is_now(state, declare):
    rules = VISITS.replace(b"0845", b"1300")
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, rules))
    declare(FEED)
    assert [row["next_visit"] for row in rows_of(state, "source")] == ["now"]


def test_a_letter_says_that_a_visit_waited_for_visit_time(state, log):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, VISITS))
    rules = Evidence(robots=hash_of(VISITS), robots_at=NOON, robots_status=200)
    opening = NOON + 18 * 3600.0
    log(
        replace(ROBOTS, evidence=rules),
        replace(SENT, requested_at=opening + 1.0, evidence=rules),
        replace(SENT, requested_at=opening + 9.0, evidence=rules),
    )
    first, second = rows_of(state, "request", "a.example", "2024-10-05")
    assert first["visit_time_began_at"] == second["visit_time_began_at"] == "2024-10-05T06:00:00Z"
    text = text_of(state, "a.example", "2024-10-05")
    assert text.count("06:00:01  the Visit-time of robots.txt began at 06:00:00") == 1
    assert text.count("Visit-time") == 1
    (robots,) = rows_of(state, "request", "a.example", "2024-10-04")
    assert robots["visit_time_began_at"] is None


@pytest.fixture
def shared(state, log):
    """A state with requests of this bot and of another one; return the numbers of their runs."""
    ours = begin_run(state, USER_AGENT, "Walsh-Research")
    theirs = begin_run(state, "Other-Bot/2.0 (+https://other.example/)", "Other-Bot")
    log(replace(ROBOTS, run=ours), replace(SENT, run=ours))
    log(replace(SENT, requested_at=NOON + 6, run=theirs, url=f"{FEED}?6"))
    deny(state, replace(DENIAL, run=theirs))
    return state


def test_each_row_says_whose_it_was(shared):
    rows = rows_of(shared, "request") + rows_of(shared, "denial")
    bots = ["Walsh-Research", "Walsh-Research", "Other-Bot", "Other-Bot"]
    assert [row["bot"] for row in rows] == bots
    (other,) = rows_of(shared, "other_bot")
    assert other["bot"] == "Other-Bot"
    assert other["user_agent"].startswith("Other-Bot/2.0")
    (sender,) = rows_of(shared, "sender")
    assert list(sender["user_agents"]) == [USER_AGENT]


def test_a_letter_names_the_bot_of_each_line(shared):
    text = text_of(shared)
    (heading,) = re.findall("^ +bot +time +answer .+", text, re.MULTILINE)
    lines = text[text.index(heading) :].splitlines()[1:5]
    assert [line.split()[0] for line in lines] == [
        *("Walsh-Research", "Other-Bot", "Walsh-Research", "Other-Bot")
    ]
    assert "Other-Bot is another bot (Other-Bot/2.0 (+https://other.example/))" in text
    assert "User-Agent  Other-Bot" not in text


def test_a_letter_of_one_bot_has_no_column_for_it(state, log):
    log(replace(SENT, run=begin_run(state, USER_AGENT, "Walsh-Research")))
    assert not re.search("^ +bot ", text_of(state), re.MULTILINE)


def test_the_last_day_is_one_of_this_bot(state, log):
    ours = begin_run(state, USER_AGENT, "Walsh-Research")
    theirs = begin_run(state, "Other-Bot/2.0 (+https://other.example/)", "Other-Bot")
    log(replace(SENT, run=ours), replace(SENT, requested_at=NOON + DAY, run=theirs))
    assert account_of(state).days == Days("2024-10-04", "2024-10-04")


def test_a_sister_host_is_not_the_reason_of_a_hold(state, log, declare):
    domain = {"WALSH_PACE_BY": "domain"}
    state.hosts.set_pace_by("domain")
    hold(state, "pair.com", 7200.0, "retry-after", 429)
    shared = replace(SENT, host="pair.com")
    log(
        replace(shared, url="http://two.pair.com/feed", status=429, hold=7200.0),
        replace(shared, url="http://one.pair.com/feed", requested_at=NOON + 7300.0),
    )
    one = text_of(state, "one.pair.com", **domain)
    assert "429" not in one
    assert "two.pair.com" not in one
    assert "on hold until 14:00:04, as all hosts of pair.com" in one
    assert "all hosts of pair.com wait together" in one
    rows = list(to_records(account_of(state, "one.pair.com", **domain)))
    assert all(row.get("hold_status") is None for row in rows)
    assert "then on hold for 2 h" in text_of(state, "two.pair.com", **domain)


def test_a_denied_redirect_is_not_said_to_be_denied_by_robots(crawled):
    (visit,) = rows_of(crawled, "source", "inward.example", **IDENTITY)
    assert visit["outcome"] == "its redirect was not followed"
    assert "denied" not in text_of(crawled, "inward.example", **IDENTITY)


def test_a_resumed_source_is_among_the_changes_by_hand(url, state, log, declare, called):
    log(SENT)
    declare(FEED)
    commit(state, SourceRecord(
        url=FEED, kind="feed", outcome="gone", status=410, failures=1, not_before=NEVER
    ))  # fmt: skip
    declare(FEED)
    Stores(state).sources.resume(FEED, "a.example")
    (override,) = rows_of(state, "override")
    assert (override["override"], override["url"]) == ("resume", FEED)
    assert f"2024-10-04 12:00:10  resumed {FEED}" in text_of(state)


def test_a_resumed_source_of_a_sister_host_is_not_mentioned(state, log):
    state.hosts.set_pace_by("domain")
    sister = "http://two.pair.com/feed"
    commit(state, SourceRecord(url=sister, kind="feed", outcome="gone", failures=1))
    Stores(state).sources.resume(sister, "pair.com")
    log(replace(SENT, host="pair.com", url="http://one.pair.com/feed"))
    assert "two.pair.com" not in text_of(state, "one.pair.com", WALSH_PACE_BY="domain")


def test_a_blocked_host_has_no_next_visit(state, log, declare, tmp_path):
    (tmp_path / "local.txt").write_text("a.example\n")
    blocked = {"WALSH_BLOCKLIST_FILE": str(tmp_path / "local.txt")}
    log(SENT)
    declare(FEED)
    hold(state, "a.example", 3600.0)
    text = text_of(state, **blocked)
    assert "nothing will be requested" in text
    assert "not before" not in text
    assert "No request before" not in text
    (visit,) = rows_of(state, "source", **blocked)
    assert (visit["next_visit"], visit["is_due"]) == ("never", False)


def test_a_blocked_host_without_any_request_has_a_letter(state, tmp_path):
    (tmp_path / "local.txt").write_text("a.example\n")
    text = text_of(state, "sub.a.example", WALSH_BLOCKLIST_FILE=str(tmp_path / "local.txt"))
    assert "nothing will be requested" in text


def test_a_period_has_the_rows_of_all_its_days(url, state, log, called):
    earlier = [replace(SENT, requested_at=NOON - days * DAY) for days in (3, 2, 1)]
    log(*earlier, SENT)
    days = Days("2024-10-02", "2024-10-03")
    account = read_account(state, options(), "a.example", days)
    times = ["2024-10-02T12:00:00Z", "2024-10-03T12:00:00Z"]
    assert [row["requested_at"] for row in account.requests] == times
    text = "\n".join(letter(account))
    assert "from 2024-10-02 to 2024-10-03" in text
    assert "  2024-10-02 12:00:00  200" in text
    given = ("why", "a.example", "--since", "2024-10-02", "--until", "2024-10-03")
    _, out, _ = called(*given, WALSH_STATE_URL=url)
    assert [line in out for line in text.splitlines()[:10]] == [True] * 10
    _, out, _ = called("why", "a.example", "--since", "2024-10-04", "--json", WALSH_STATE_URL=url)
    assert json.loads(out.splitlines()[0]).items() >= {"since": "2024-10-04", "until": None}.items()
    assert [json.loads(line)["record"] for line in out.splitlines()].count("request") == 1


def forget(state, url=""):
    """Delete what the state has of a host or of one of its URLs, as `walsh forget` does."""
    Stores(state).forgetting.forget(Target("a.example", "a.example", url), "mail of 3 May")


def both_since(state, day, subject="a.example", until=None):
    """The letter about a period, and its JSON rows about missing requests."""
    account = read_account(state, options(), subject, Days(day, until))
    rows = [row for row in to_records(account) if row["record"] == "missing"]
    return "\n".join(letter(account)), rows


@pytest.mark.parametrize("subject", ["a.example", FEED])
@pytest.mark.parametrize("until", [None, "2024-10-04"])
def test_deleted_requests_are_not_said_to_be_none(state, log, subject, until):
    log(ROBOTS, SENT)
    forget(state)
    text, rows = both_since(state, "2024-10-04", subject, until)
    assert "We deleted 2 requests of a.example at 2024-10-04 12:00:10" in text
    assert "No request was sent" not in text
    (row,) = rows
    names = ("cause", "before", "requests")
    assert [row[name] for name in names] == ["forgotten", "2024-10-04T12:00:10Z", 2]


def test_a_letter_with_requests_says_that_others_were_deleted(state, log):
    log(ROBOTS, replace(SENT, url=f"{FEED}?2"))
    forget(state, f"{FEED}?2")
    text, _ = both_since(state, "2024-10-01")
    assert "robots.txt itself" in text
    assert f"We deleted 1 request of {FEED}?2 at" in text


def test_days_after_a_deletion_are_complete(state, log):
    log(SENT)
    forget(state)
    with pytest.raises(CommandError, match=r"^no request to a\.example since 2024-10-05"):
        both_since(state, "2024-10-05")
    log(replace(SENT, requested_at=NOON + DAY))
    text, rows = both_since(state, "2024-10-05")
    assert "We deleted" not in text
    assert "no earlier request" not in text
    assert rows == []


@pytest.fixture
def pruned(state, log):
    """A state with requests of 60, 50 and 0 days ago, of which a crawl deleted the old ones."""
    log(*(replace(SENT, requested_at=SENT.requested_at - days * DAY) for days in (60, 50, 0)))
    assert state.prune(NOON, options().log_seconds, lambda: True)
    return state


@pytest.mark.parametrize("subject", ["a.example", f"{FEED}?other"])
def test_days_before_the_log_are_no_longer_kept(pruned, subject):
    with pytest.raises(CommandError) as error:
        account_of(pruned, subject, "2024-08-15")
    assert "before 2024-09-04 are no longer kept (WALSH_LOG_DAYS = 30)" in str(error.value)
    assert not str(error.value).startswith("no request")


@pytest.mark.parametrize("since", [None, "2024-08-05", "2024-09-03"])
def test_a_period_that_begins_before_the_log_says_so(pruned, since):
    text, rows = both_since(pruned, since, until="2024-10-05")
    assert "Requests before 2024-09-04 are no longer kept (WALSH_LOG_DAYS = 30)." in text
    (row,) = rows
    assert (row["before"], row["log_days"]) == ("2024-09-04T00:00:00Z", 30)


def test_a_period_within_the_log_is_complete(pruned):
    text, rows = both_since(pruned, "2024-09-04")
    assert "no longer kept" not in text
    assert rows == []


def test_old_requests_that_are_not_deleted_yet_are_kept(state, log):
    log(replace(SENT, requested_at=NOON - 60 * DAY), SENT)
    text, _ = both_since(state, "2024-08-01")
    assert "  2024-08-05 12:00:00  200" in text
    assert "Requests before 2024-08-05 12:00:00 are no longer kept" in text


def test_no_request_on_a_day_before_the_log_is_not_claimed(pruned):
    deny(pruned, replace(DENIAL, denied_at=NOON - 50 * DAY))
    assert "No request was sent" not in text_of(pruned, "a.example", "2024-08-15")


SHUT = b"User-agent: *\nDisallow: /\n"


@pytest.mark.parametrize(
    ("rules", "is_shut"),
    [
        (SHUT, True),
        (b"User-agent: *\nDisallow: *\n", True),
        (b"User-agent: *\nDisallow: /x\n\nUser-agent: Walsh-Research\nDisallow: /*\n", True),
        (RULES, False),
        (b"User-agent: *\nDisallow: /$\n", False),
        (SHUT + b"Allow: /feed\n", False),
        (SHUT + b"\nUser-agent: Walsh-Research\nDisallow: /x\n", False),
        (b"User-agent: Other-Bot\nDisallow: /\n", False),
        (b"", False),
    ],
)
def test_a_site_that_denies_all_needs_no_more_lines(state, log, rules, is_shut):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, rules))
    log(SENT)
    text = text_of(state)
    assert ("add these lines to your robots.txt" in text) != is_shut
    assert ("\n  Disallow: /\n" in text) != is_shut
    assert "or write to" in text
    (host,) = rows_of(state, "host")
    assert host["robots_denies_all"] is is_shut


@pytest.mark.parametrize(
    "copy", [RobotsCopy(NOON, 200, RULES), RobotsCopy(NOON, 503, failing_since=NOON)]
)
def test_each_robots_txt_of_a_host_must_deny_all(state, log, copy):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, SHUT))
    keep_robots(state, "https://a.example:443", copy)
    log(SENT)
    assert "add these lines" in text_of(state, WALSH_ROBOTS_UNREACHABLE="disallow")


def test_the_robots_txt_of_another_site_is_not_looked_at(state, log):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, SHUT))
    keep_robots(state, "http://b.example:80", RobotsCopy(NOON, 200, RULES))
    log(SENT)
    assert "add these lines" not in text_of(state)


@pytest.mark.parametrize("rules", [RULES, SHUT])
def test_a_letter_says_when_a_changed_robots_txt_counts(state, log, rules):
    keep_robots(state, "http://a.example:80", RobotsCopy(NOON, 200, rules))
    log(SENT)
    assert "A changed robots.txt counts within 24 hours" in text_of(state)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--on", "2024-10-04", "--since", "2024-10-03"),
        ("--since", "2024-10-04", "--until", "2024-10-03"),
    ],
)
def test_days_that_contradict_each_other_are_refused(called, arguments):
    status, _, err = called("why", "a.example", *arguments)
    assert status == 2
    assert arguments[0] in err


def test_url_selects_its_requests_and_robots_txt(state, log):
    deny(state, DENIAL)
    log(ROBOTS, SENT, replace(SENT, url="http://a.example/other", requested_at=NOON + 9.0))
    rows = account_of(state, "http://A.example/feed/").requests
    assert [row["url"] for row in rows] == [ROBOTS.url, FEED]
    rows = account_of(state, DENIAL.url).requests
    assert [row["url"] for row in rows] == [ROBOTS.url, DENIAL.url]
    with pytest.raises(CommandError, match=r"why a\.example --on 2024-10-04"):
        account_of(state, "http://a.example/nothing")


@pytest.mark.parametrize(
    ("contact", "page"), [("mail@bot.example", "https://bot.example/"), ("", "https://b.example/")]
)
def test_own_bot_is_named_as_it_names_itself(state, log, contact, page):
    """One without an address of mail is given nobody else's."""
    begin_run(state, f"Bot/1.0 (+{page}; {contact})", "Bot")
    log(SENT)
    name = {"WALSH_USER_AGENT": f"Bot/1.1 (+{page}; {contact})", "WALSH_UA_TOKEN": "Bot"}
    sender = account_of(state, **name).sender
    assert (sender.contact, sender.policy) == (contact or None, page)
    text = text_of(state, **name)
    assert set(re.findall(r"\S+@[\w.]+", text)) == ({contact} if contact else set())
    assert "wal.sh" not in text
    assert "Walsh" not in text


@pytest.mark.parametrize(
    ("subject", "day", "words"),
    [
        ("b.example", None, "no request to b.example in the last 30 days, and no source there"),
        ("example", None, "a.example"),
        ("a.example", "1970-01-08", "2024-10-04"),
        ("http://[", None, "not a host name"),
        ("_.example", None, "no request to _.example"),
    ],
)
def test_error_without_requests_names_the_alternatives(state, log, subject, day, words):
    log(SENT)
    with pytest.raises(CommandError) as error:
        account_of(state, subject, day)
    assert words in str(error.value)


def test_a_host_without_requests_has_its_hold_and_its_sources(state, declare):
    declare("http://b.example/feed", "http://b.example/gone")
    commit(state, SourceRecord(
        url="http://b.example/gone", kind="feed", outcome="gone", status=410, not_before=NEVER
    ))  # fmt: skip
    declare("http://b.example/feed", "http://b.example/gone")
    hold(state, "b.example", 3600.0, "visit-time")
    text = text_of(state, "b.example")
    assert "No request was sent." in text
    assert "2024-10-04 13:00:10; on hold" in text
    visits = {row["url"][17:]: row["next_visit"] for row in rows_of(state, "source", "b.example")}
    assert visits == {"feed": "2024-10-04T13:00:10Z", "gone": "never"}


def test_a_gate_of_the_project_denies_with_its_reason(state):
    deny(state, replace(DENIAL, gate="office", evidence=Evidence(), reason="no robots there"))
    assert "no robots there" in text_of(state)


def test_json_is_one_object_a_line(url, state, log, called):
    deny(state, DENIAL)
    log(ROBOTS, SENT)
    _, out, err = called("why", "a.example", "--json", WALSH_STATE_URL=url)
    rows = [json.loads(line) for line in out.splitlines()]
    names = ["sender", "request", "denial", "request", "robots", "missing", "host"]
    assert [row["record"] for row in rows] == names
    assert rows[3].items() >= {"gap": 3.0, "required_gap": 2.0, "line": 3, "status": 200}.items()
    assert err == ""


def test_texts_of_sites_are_escaped_and_no_url_is_cut(url, state, log, called):
    long = f"http://a.example/{'x' * 300}"
    log(replace(SENT, url=long), replace(SENT, requested_at=NOON + 9, status=None, error="\x1b[2J"))
    _, out, _ = called("why", "a.example", WALSH_STATE_URL=url)
    assert long in out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_letter_has_no_address_but_the_senders(state, log):
    url = "http://a.example/feed?token=hidden&page=2"
    log(replace(SENT, url=url, error="no jo@a.example"), replace(ROBOTS, gates="by jo@a.example"))
    deny(state, replace(DENIAL, url=f"{url}#x", gate="office", reason="jo@a.example opted out"))
    for page in (
        text_of(state),
        json.dumps(list(to_records(account_of(state)))),
        text_of(state, url),
    ):
        assert "hidden" not in page
        assert "jo@" not in page
        assert "j@wal.sh" in page
    assert "http://a.example/feed?token=…&page=2" in text_of(state)
