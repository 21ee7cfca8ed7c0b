"""`walsh why`: what the letter says of a day, on both databases (decision 33)."""

import contextlib
import json
import re
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from scrapy.settings import Settings
from sqlalchemy import delete

from tests.helpers import records
from tests.helpers.records import RECORD, commit, deny, hold, keep_robots, log_requests
from tests.helpers.sites import IDENTITY, feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.robots.copy import MOST_LINES, RobotsCopy, quote
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.documents import hash_of
from walsh_scrapy.state.log import Evidence
from walsh_scrapy.state.records import BlocklistCopy, SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import copies
from walsh_scrapy.testing.simulation import simulate
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.why import account as accounts
from walsh_scrapy.tools.why.letter import letter, record_of

DAY = 86_400.0
NOON = 20_000 * DAY + 43_200.0  # of 2024-10-04
RULES = b"User-agent: *\nDisallow: /private\nAllow: /feed\n"
ALLOWED = Evidence("Allow: /feed", 3, hash_of(RULES), NOON, hash_of(b"{}"))
FEED = "http://a.example/feed"
SENT = replace(RECORD, requested_at=NOON + 4.0, url=FEED, duration=0.5, run=1, delay=2.0)
SENT = replace(SENT, evidence=ALLOWED)
ROBOTS = replace(SENT, requested_at=NOON, url="http://a.example/robots.txt", duration=1.0)
ROBOTS = replace(ROBOTS, delay=0.0)
ROBOTS = replace(ROBOTS, purpose="robots", evidence=Evidence())
DENIED = Evidence("Disallow: /private", 2, hash_of(RULES), NOON, None)
DENIAL = replace(records.DENIAL, denied_at=NOON + 1.0, evidence=DENIED)
OTHER_BOT = {
    "user_agent": "Example-Bot/1.0 (+https://bot.example/about; bot@bot.example)",
    "ua_token": "Example-Bot",
    "blocklist_url": "",
}


#: Sites that share a robots.txt, or have none; two more lead to others, by their own redirects.
SHARING = ("a.example", "b.example", "none.example", "no.example", "empty.example", "e.example")
SITES = (
    *(site(host, RULES.decode()) for host in SHARING[:2]),
    *(site(host, Reply(status=404)) for host in SHARING[2:4]),
    *map(site, SHARING[4:]),
    Site("led.example", redirect("http://a.example/robots.txt"), {"/feed": feed()}),
    Site("ill.example", Reply(status=500), {"/feed": feed()}),
    Site("nowhere.example", Reply(status=302), {"/feed": feed()}),
    Site("old.example", "", {"/feed": redirect("http://new.example/feed")}),
    Site("new.example", RULES.decode(), {"/feed": feed()}),
    Site("inward.example", "", {"/feed": redirect("http://10.0.0.1/feed")}),
)


def options(**settings):
    return Options.from_settings(Settings(settings))


@pytest.fixture
def state(url):
    with contextlib.closing(State(url)) as opened:
        keep_robots(opened, "http://a.example:80", RobotsCopy(NOON, 200, RULES))
        copy = BlocklistCopy(hash_of(b"{}"), None, None, NOON)
        opened.blocklist.keep("http://a.example/list", copy, b"{}")
        deny(opened, DENIAL)
        yield opened


@pytest.fixture
def log(state):
    """Write requests into the log."""
    return partial(log_requests, state)


@pytest.fixture(scope="module")
def record_of_sites(tmp_path_factory, crawl_launcher, pytestconfig):
    """The state after a crawl of sites that share what they have, and its sources."""
    folder = tmp_path_factory.mktemp("sites")
    sources = [f"http://{site.host}/feed" for site in SITES if site.host != "new.example"]
    simulate(
        *SITES,
        sources=sources,
        folder=folder,
        settings={f"WALSH_{name.upper()}": value for name, value in OTHER_BOT.items()},
        launcher=crawl_launcher,
        project=pytestconfig.rootpath,
    )
    with contextlib.closing(State(f"sqlite:///{folder / 'walsh.sqlite3'}")) as opened:
        yield opened, [Source(url) for url in sources]


def give_account(state, *given):
    with state.log() as read:
        return accounts.give_account(state, read, *given)


def told(state, subject="a.example", day=None, **settings):
    return "\n".join(letter(give_account(state, options(**settings), subject, day)))


def words_of(account):
    """The letter in one line."""
    return " ".join("\n".join(letter(account)).split())


def test_each_request_has_its_reason_and_its_gaps(state, log):
    log(ROBOTS, SENT)
    text = told(state)
    assert "Requests of Walsh-Research to a.example\non 2024-10-04, all times in UTC" in text
    for said in (
        "12:00:00  http://a.example/robots.txt",
        "12:00:04  http://a.example/feed",
        "line 3 of robots.txt allows it, 'Allow: /feed'; its host was",
        "gap: 3 s after the previous request (required: 2 s)",
        "12:00:01  http://a.example/private",
        "kept back by robots: line 2",
        "2 | Disallow: /private",
        f"SHA-256 {hash_of(RULES)}",
        "User-agent: Walsh-Research\n      Disallow: /\n",
        "j@wal.sh",
    ):
        assert said in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("host", [*(site.host for site in SITES), "10.0.0.1"])
def test_nothing_that_is_said_of_a_site_names_another_one(record_of_sites, host):
    """It comes from the site's own exchanges; only its redirects name others."""
    state, sources = record_of_sites
    account = give_account(state, options(), host, None, sources)
    record = record_of(account)
    pages = {"letter": "\n".join(letter(account)), "json": json.dumps(record)}
    others = {site.host for site in SITES} - {host}
    for name, page in pages.items():
        assert not {other for other in others if re.search(rf"\b{other}\b", page)}, name
        assert name == "json" or host in page
    origins = [robots["origin"] for robots in record["robots"]]
    assert origins == ([f"http://{host}:80"] if account.requests else [])
    assert account.requests or "a redirect of another host led here" in pages["letter"]


@pytest.mark.parametrize(
    ("host", "status", "is_shared", "words"),
    [
        ("b.example", 200, True, " UTC: 200 SHA-256"),
        ("no.example", 404, False, " UTC: 404, so no rule is in force"),
        ("empty.example", 200, False, " UTC: 200"),
        ("nowhere.example", 302, False, " UTC: 302, so no rule is in force"),
        ("led.example", 200, True, " UTC: 200"),
        ("ill.example", 500, False, " UTC: 500, and no earlier file is in force"),
    ],
)
def test_the_robots_txt_of_a_letter_is_as_the_site_gave_it(
    record_of_sites, host, status, is_shared, words
):
    account = give_account(record_of_sites[0], options(), host, None)
    *_, own = (each.record for each in account.requests if each.record.purpose == "robots")
    (found,) = record_of(account)["robots"]
    (asked,) = found["requests"]
    assert asked["requested_at"] >= rfc3339(own.requested_at)
    assert (asked["status"], found["sha256"] == hash_of(RULES)) == (status, is_shared)
    text = words_of(account)
    assert f"http://{host}/robots.txt fetched" in text
    assert words in text
    assert ("its site gave no robots.txt (404), so no rule forbids it" in text) == (status == 404)


def test_a_robots_txt_that_fails_later_leaves_the_last_one_in_force(state, log):
    failing = replace(ROBOTS, requested_at=NOON + 100.0, status=503)
    later = replace(ALLOWED, robots_at=NOON + 101.0, robots_status=503)
    log(ROBOTS, SENT, failing, replace(SENT, requested_at=NOON + 110.0, evidence=later))
    account = give_account(state, options(), "a.example", None)
    (robots,) = record_of(account)["robots"]
    asked = [each["requested_at"] for each in robots["requests"]]
    assert asked == ["2024-10-04T12:00:00Z", "2024-10-04T12:01:41Z"]
    said = "12:01:41 UTC: 503, and the last file that it gave was this one"
    assert said in words_of(account)


def test_a_request_after_an_unread_robots_txt_says_until_when_that_was_asked_for(state, log):
    unread = Evidence(robots_at=NOON + 60.0, robots_status=None)
    log(replace(ROBOTS, status=None, duration=30.0))
    log(replace(SENT, requested_at=NOON + 70.0, evidence=unread))
    text = " ".join(told(state).split())
    assert "no robots.txt could be read until 2024-10-04 12:01:00 UTC (no answer)" in text
    assert "fetched 2024-10-04 12:01:00 UTC: no answer" in text


def test_a_request_that_came_of_a_redirect_says_so(record_of_sites, state, log):
    sites, _ = record_of_sites
    new = record_of(give_account(sites, options(), "new.example", None))["requests"][-1]
    assert new["reason"].endswith("; a redirect of another host led here")
    assert (new["is_redirected"], new["redirected_from"]) == (True, None)
    copied = record_of(give_account(sites, options(), "a.example", None))["requests"]
    robots = [each["is_redirected"] for each in copied if each["purpose"] == "robots"]
    assert robots == [False, True]
    secure = "https://a.example/feed"
    log(replace(SENT, url=secure, evidence=replace(ALLOWED, redirected_from=FEED)))
    led = replace(DENIAL.evidence, redirected_from="http://b.example/")
    deny(state, replace(DENIAL, evidence=led))
    told_of = give_account(state, options(), "a.example", None)
    assert record_of(told_of)["requests"][-1]["redirected_from"] == FEED
    text = words_of(told_of)
    assert f"; a redirect of {FEED} led here" in text
    assert "'Disallow: /private'; a redirect of another host led here" in text


@pytest.fixture
def noon(url):
    """A state whose clock says noon, and a function that commits a record of a source."""
    with contextlib.closing(State(url, lambda: NOON)) as opened:

        def visited(source, **record):
            known = {"not_before": NOON} | record
            commit(opened, SourceRecord(url=source, kind="feed", **known))

        yield opened, visited


def outlook(state, subject="a.example", sources=(), **settings):
    account = give_account(state, options(**settings), subject, None, tuple(sources))
    return account, " ".join("\n".join(letter(account)).partition("Our next requests")[2].split())


def test_a_host_on_hold_says_until_when_and_which_answer_began_it(noon, log):
    state, _ = noon
    log(replace(SENT, requested_at=NOON - 0.5, status=503, hold=3540.0))
    hold(state, "a.example", 3540.0, "retry-after", 503)
    account, text = outlook(state, sources=[Source(FEED)])
    assert "on hold until 2024-10-04 12:59:00 UTC: it answered 503 and asked for" in text
    assert f"{FEED} due, and deferred until its host may be requested" in text
    told = record_of(account)["outlook"]
    assert told["hold_until"] == told["not_before"] == "2024-10-04T12:59:00Z"
    assert told["hold_reason"] == (
        "it answered 503 and asked for 59 min (Retry-After); it began at 2024-10-04 12:00:00 UTC"
    )
    hold(state, "b.example", 9000.0, "visit-time")
    account, text = outlook(state, "b.example")
    assert (account.day, account.requests) == ("2024-10-04", ())
    assert "Nothing: no byte was sent." in "\n".join(letter(account))
    assert "on hold until 2024-10-04 14:30:00 UTC: its robots.txt demands that" in text


def test_by_domain_the_hold_is_the_domains(noon, log):
    state, _ = noon
    bot = {f"WALSH_{name.upper()}": value for name, value in OTHER_BOT.items()}
    refused = replace(SENT, host="a.com", requested_at=NOON - 0.5, status=None, hold=60.0)
    log(*(replace(refused, url=f"http://{name}.a.com/") for name in ("one", "two")))
    hold(state, "a.com", 60.0, "backoff")
    _, text = outlook(state, "two.a.com", WALSH_PACE_BY="domain", **bot)
    assert "UTC: a.com is paced as one, and there was no answer (our backoff, R5)" in text
    assert "on hold" in outlook(state, "one.a.com", WALSH_PACE_BY="domain", **bot)[1]


def test_each_source_of_a_host_says_when_it_is_due_or_why_it_is_not_asked_for(noon):
    state, visited = noon
    named = ["new", "young", "old", "failing", "gone", "moved", "private", "leads", "once"]
    urls = {name: f"http://a.example/{name}" for name in named}
    for name, record in {
        "young": {"visited_at": NOON - 3600.0, "outcome": "fetched"},
        "old": {"visited_at": NOON - 2 * DAY, "outcome": "fetched"},
        "failing": {"visited_at": NOON, "outcome": "failed", "failures": 1, "status": 500},
        "gone": {"visited_at": NOON, "outcome": "gone", "not_before": NEVER},
        "moved": {"visited_at": NOON, "moved_to": "http://b.example/", "move_settled": True},
        "private": {"visited_at": NOON, "outcome": "denied by robots", "detail": "d.example"},
        "leads": {"visited_at": NOON, "outcome": "denied by robots", "status": 302},
        "once": {"visited_at": NOON, "outcome": "fetched"},
    }.items():
        visited(urls[name], **record)
    deny(state, replace(DENIAL, denied_at=NOON - 1.0, url=urls["private"]))
    deny(state, replace(DENIAL, denied_at=NOON - 9 * DAY, url=urls["leads"]))
    declared = [Source(url) for name, url in urls.items() if name != "once"]
    account, text = outlook(state, "a.example", declared)
    assert [target.url for target in account.outlook.targets] == [*urls.values()]
    tomorrow = "not due before 2024-10-05 12:00:00 UTC"
    for name, said in {
        "new": "due, so the next run looks at it",
        "young": "not due before 2024-10-05 11:00:00 UTC (every 1 d)",
        "old": "due, so the next run looks at it",
        "failing": f"{tomorrow} (failing, again after 1 d)",
        "gone": "gone permanently (410), so it is not requested",
        "moved": "moved permanently, so its new URL is requested",
        "private": f"denied by robots: {DENIAL.reason}; {tomorrow} (every 1 d)",
        "leads": f"its redirect is denied by robots; {tomorrow} (every 1 d)",
        "once": "no longer a source",
    }.items():
        assert f"{urls[name]} {said}" in text
    assert "b.example" not in text
    assert "d.example" not in text
    (target,) = record_of(outlook(state, urls["young"], declared)[0])["outlook"]["targets"]
    assert (target["due"], target["due_at"]) == (False, "2024-10-05T11:00:00Z")
    _, text = outlook(state, "b.example", declared)
    assert "http://b.example/ not due before" in text, "it moved here"
    assert "a.example" not in text


def test_what_was_never_declared_says_so(noon, log):
    state, _ = noon
    log(SENT)
    assert "no source is declared here" in outlook(state)[1]
    elsewhere = [Source("http://a.example/other")]
    assert "no source is declared with this URL" in outlook(state, FEED, elsewhere)[1]
    assert "declared" not in outlook(state, sources=elsewhere)[1]
    with pytest.raises(CommandError, match="no source there"):
        outlook(state, "c.example")
    unread = give_account(state, options(), "a.example", None).outlook
    assert (unread.is_declared, unread.targets) == (None, ())


def test_what_the_operator_did_stands_with_its_reason(noon, log):
    state, _ = noon
    log(SENT)
    hold(state, "a.example", 7200.0)
    state.hosts.release("a.example", "mail of 3 May: go on")
    state.hosts.delay("a.example", 60.0, "its owner asks for it")
    state.hosts.delay("b.example", 60.0, "another host")
    account, text = outlook(state, sources=[Source(FEED, delay=timedelta(seconds=90))])
    whole = words_of(account)
    assert "2024-10-04 12:00:00 UTC ended a hold that had 2 h left: mail of 3 May: go on" in whole
    assert "1 min at least between two requests from then on: its owner asks for it" in whole
    assert "another host" not in whole
    assert "1 min 30 s at least between two requests, by our choice" in text
    first, second = record_of(account)["overrides"]
    assert (first["override"], first["seconds"]) == ("release", 7200.0)
    assert first["made_at"] == "2024-10-04T12:00:00Z"
    assert second["reason"] == "its owner asks for it"
    state.hosts.delay("a.example", 0.0, "")
    account, _ = outlook(state)
    assert "ended our delay: no reason given" in "\n".join(letter(account))


def test_a_gap_in_which_a_clock_was_set_back_is_not_known(state, log):
    moments = [(0.0, 0.5), (10.0, 10.5), (10.2, 12.5), (13.2, 15.5)]  # of a clock never set as well
    log(*(replace(SENT, requested_at=NOON + at, monotonic=end) for at, end in moments))
    assert told(state).count("too short") == 0
    assert told(state).count("gap: not known, because a clock was set in between") == 1


def test_the_last_request_of_another_day_counts_for_the_gap(state, log):
    log(replace(SENT, requested_at=NOON - DAY, duration=3.0), SENT)
    (sent,) = give_account(state, options(), FEED, None).requests
    assert sent.gap.kept == DAY + 1.0
    account = give_account(state, options(), "a.example", 19_999)
    assert account.day == "2024-10-03"
    (first,) = account.requests
    assert first.gap.kept is None


def test_with_a_url_only_its_own_requests_and_robots_txt_are_told(state, log):
    log(ROBOTS, SENT, replace(SENT, url="http://a.example/other", requested_at=NOON + 9.0))
    account = give_account(state, options(), "http://A.example/feed/", None)
    assert [sent.record.url for sent in account.requests] == [ROBOTS.url, FEED]
    assert account.denials == ()
    denied = give_account(state, options(), DENIAL.url, None)
    assert [each.url for each in denied.denials] == [DENIAL.url]
    with pytest.raises(CommandError, match=r"why a\.example --on 2024-10-04"):
        give_account(state, options(), "http://a.example/nothing", None)
    assert give_account(state, options(), ROBOTS.url, None).requests[0].record.url == ROBOTS.url


def test_another_bot_is_named_as_it_names_itself(state, log):
    state.runs.begin(RunRecord(spider="feeds", started_at=NOON, settings=OTHER_BOT))
    log(SENT)
    text = told(state)
    for said in (
        "Requests of Example-Bot",
        "Policy:     https://bot.example/about\n",
        "Or write to bot@bot.example.\n",
    ):
        assert said in f"{text}\n"
    assert "wal.sh" not in text
    assert "Walsh" not in text


def test_other_reasons(state, log):
    def reason(**changes):
        url = f"http://b.example/{len(changes)}{sorted(changes.items(), key=str)}"
        record = replace(SENT, host="b.example", url=url, **changes)
        log(record)
        account = give_account(state, options(), "b.example", None)
        return record_of(account)["requests"][-1]["reason"]

    assert "is published there" in reason(purpose="blocklist", requested_at=NOON + 1)
    unread = Evidence(robots_at=NOON, robots_status=503)
    said = "no robots.txt could be read until 2024-10-04 12:00:00 UTC (503)"
    assert said in reason(evidence=unread, requested_at=NOON + 2)
    silent = replace(ALLOWED, rule=None, line=None)
    assert "no rule of robots.txt is about it" in reason(evidence=silent, requested_at=NOON + 3)
    assert "no gate for robots.txt" in reason(evidence=Evidence(), requested_at=NOON + 4)
    keep_robots(state, "http://b.example:80", RobotsCopy(NOON, 200, b"lost"))
    reason(evidence=replace(ALLOWED, robots=hash_of(b"lost")), requested_at=NOON + 5)
    lost = delete(copies).where(copies.c.body == b"lost")
    state._database.write(lambda connection: connection.execute(lost))
    text = told(state, "b.example")
    assert "\n  It is no longer kept.\n" in text
    assert "none, the previous request had not ended" not in text
    log(replace(SENT, host="b.example", url="http://b.example/9", requested_at=NOON + 5.2))
    assert "none, the previous request had not ended" in told(state, "b.example")


def test_what_is_not_known_is_said_with_what_is(state, log):
    log(SENT)
    for subject, day, said in (
        ("b.example", None, "no request to b.example in the last 30 days"),
        ("example", None, "a.example"),
        ("a.example", 7, "2024-10-04"),
        ("http://[", None, "neither a host nor a URL"),
        ("_.example", None, "no request to _.example"),
    ):
        with pytest.raises(CommandError) as error:
            give_account(state, options(), subject, day)
        assert said in str(error.value)


def test_a_letter_does_without_a_sources_file_that_cannot_be_read(url, state, tmp_path, called):
    why = partial(called, "why", "a.example", WALSH_STATE_URL=url, WALSH_SOURCES="none.toml")
    _, out, err = why()
    assert "declared" not in out
    assert "the declared sources are left out: none.toml: there is no such file" in err
    (tmp_path / "sources.txt").write_text(FEED)
    _, out, err = why("--sources", "sources.txt", "--json")
    assert [each["url"] for each in json.loads(out)["outlook"]["targets"]] == [FEED]
    assert err == ""
    assert why(**IDENTITY)[2] == "", "it follows links"
    assert "none.toml: there is no such file" in why("--sources", "none.toml", **IDENTITY)[2]


def test_strangers_text_is_escaped_and_neither_cut_nor_wrapped_within_a_url(state, log):
    long = f"http://a.example/{'x' * 300}"
    log(
        replace(SENT, url=long),
        replace(SENT, requested_at=NOON + 9.0, status=None, error="\x1b[2J"),
    )
    text = told(state)
    assert long in text
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def test_of_a_long_file_only_what_is_about_the_bot_is_quoted():
    others = b"".join(b"User-agent: b%d\nDisallow: /%d\n" % (n, n) for n in range(100))
    body = others + b"User-agent: Walsh\nDisallow: /x\nDisallow: /y\nCrawl-delay: 9\n"
    quoted = quote(body, "Walsh-Research", [203])
    assert [line.number for line in quoted] == [201, 203, 204]
    assert quoted[1].text == "Disallow: /y"
    short = b"\n".join(b"a" * n for n in range(MOST_LINES))
    assert len(quote(short, "x")) == MOST_LINES
    assert quote(b"", "x") == ()


def test_where_a_gate_of_the_project_denies_the_letter_does_not_say_that_nothing_does(state):
    host = "library.example"
    staff = {"host": host, "url": f"http://{host}/staff/", "gate": "office"}
    deny(state, replace(DENIAL, **staff, reason="it wants no robot there"))
    told = "\n".join(letter(give_account(state, options(), host, None)))
    assert "kept back by office: it wants no robot there" in told
    assert "Nothing keeps us" not in told
    assert "each gate decides again then" in told


def test_addresses_and_credentials_are_in_no_letter_but_the_sender_s(state, log):
    url = "http://a.example/feed?token=hidden&page=2"
    log(replace(SENT, url=url, error="no jo@a.example"), replace(ROBOTS, gates="by jo@a.example"))
    deny(state, replace(DENIAL, url=f"{url}#x", reason="jo@a.example opted out"))
    account = give_account(state, options(), "a.example", None)
    text, record = "\n".join(letter(account)), json.dumps(record_of(account))
    for said in (text, record):
        assert "hidden" not in said
        assert "jo@" not in said
        assert "j@wal.sh" in said
    assert "http://a.example/feed?token=…&page=2" in text
    assert "… opted out" in text
    assert "hidden" not in told(state, url)
