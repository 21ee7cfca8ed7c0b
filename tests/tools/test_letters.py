"""`scrapy why` on odd days: each sentence of a letter is true by the log of the servers.

Two runs with a refusal and a release between them, a host that opts out by the list at noon, one
that opts out by robots.txt, a run that is killed, redirects across hosts, and a source that was
removed. A sentence that no check knows fails.
"""

import contextlib
import os
import re
import signal
from datetime import UTC, datetime

import pytest
from scrapy.settings import Settings

from tests.helpers.sites import LIST_URL, blocklist, feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.why.account import give_account
from walsh_scrapy.tools.why.letter import letter

#: When the simulated runs begin: 2026-01-01.
BEGIN = 1_767_225_600.0
HOUR = 3600.0
OPTIONS = Options.from_settings(Settings({"WALSH_BLOCKLIST_URL": LIST_URL}))
OUTLOOK = "When we ask again"
REMOVED, LEADS = "http://new.example/feed", "http://old.example/feed"
FIRST = [f"http://{name}.example/feed" for name in ("busy", "led", "out")]
FIRST += ["http://deny.example/private", LEADS, REMOVED]


def die(_hit):
    """The machine of the crawl loses its power."""
    os.kill(os.getpid(), signal.SIGKILL)


def web(*, is_listed=False, busy=None, killer=None):
    refused = Reply(status=503, headers={"Retry-After": "7200"})
    listed = ["out.example"] if is_listed else []
    return [
        site("operator.example", **{"blocklist.json": blocklist("else.example", *listed)}),
        Site("busy.example", "", {"/feed": busy or [refused, feed()]}),
        Site("led.example", redirect("http://rules.example/robots.txt"), {"/feed": feed()}),
        Site("rules.example", "User-agent: *\nDisallow: /private\n", {}),
        site("out.example"),
        Site("deny.example", "User-agent: *\nDisallow: /private\n", {"/private": feed()}),
        Site("old.example", "", {"/feed": redirect(REMOVED)}),
        Site("new.example", "User-agent: *\nAllow: /feed\n", {"/feed": feed()}),
        site("noon.example"),
        Site("killer.example", "", {"/feed": killer or die}),
    ]


class Days:
    """What happened: the state, and the hits of all runs, by the servers."""

    def __init__(self, simulated, folder):
        self._simulated = simulated
        self._file = f"sqlite:///{folder / 'simulation' / 'walsh.sqlite3'}"
        self.hits = []

    def run(self, at, sources, *, dies=False, **how):
        settings = {"WALSH_BLOCKLIST_URL": LIST_URL}
        if dies:
            with pytest.raises(RuntimeError):
                self._simulated(*web(**how), sources=sources, starts=[at], settings=settings)
            return
        (done,) = self._simulated(*web(**how), sources=sources, starts=[at], settings=settings)
        assert done.exit_code == 0, done.stderr
        self.hits += done.log

    def at(self, now):
        return contextlib.closing(State(self._file, lambda: BEGIN + now))

    def letter(self, host, now, sources, day=None):
        """The sections of the letter about a host, by their headings."""
        with self.at(now) as state, state.log() as log:
            declared = [Source(url) for url in sources]
            account = give_account(state, log, OPTIONS, host, day, declared)
        lines, found, section = list(letter(account)), {}, None
        for line in lines:
            if line and not line.startswith(" "):
                section = found.setdefault(line.partition(",")[0], [])
            elif line and section is not None:
                section.append(line)
        return found

    def of(self, host):
        return [hit for hit in self.hits if hit.host == host]


@pytest.fixture
def days(simulated, tmp_path):
    """All that happened from the first run until the second day."""
    found = Days(simulated, tmp_path)
    found.run(0.0, FIRST)
    (refused,) = [hit for hit in found.of("busy.example") if hit.status == 503]
    with found.at(refused.wall - BEGIN + 38.0) as state:
        state.hosts.release("busy.example", "its owner asked us to go on")
    found.run(600.0, FIRST, busy=feed())
    found.run(12 * HOUR, [*FIRST, "http://noon.example/feed"], is_listed=True)
    found.run(15 * HOUR, ["http://killer.example/feed"], is_listed=True, dies=True)
    return found


def words(lines):
    """The requests and denials of a section: time, URL, and sentences by their first words."""
    rows = []
    for line in lines:
        if begun := re.fullmatch(r"  (\d\d:\d\d:\d\d)  (\S+)", line):
            rows.append((begun[1], begun[2], []))
        elif re.match(r" +(why|pause|answer|kept back)", line) and rows:
            rows[-1][2].append(line.strip())
        elif rows:
            rows[-1][2][-1] += f" {line.strip()}"
    return rows


def seconds(text):
    """The shortest duration that is said so: `2 h`, `1 min 5 s`, `1.5 s`."""
    units = {"d": DAY, "h": HOUR, "min": 60.0, "s": 1.0}
    parts = re.findall(r"([\d.]+) (d|h|min|s)\b", text)
    return sum(float(number) * units[unit] for number, unit in parts)


def check_requests(days, host, section, day=0):
    """Check what a letter says of the requests of a day: these, in this way, and no others."""
    begin = BEGIN + day * DAY
    hits = [hit for hit in days.of(host) if begin <= hit.wall < begin + DAY]
    told = words(section)
    assert [url for _, url, _ in told] == [f"http://{host}{hit.path}" for hit in hits]
    for number, (time, _, sentences) in enumerate(told):
        hit, before = hits[number], hits[number - 1] if number else None
        sent = datetime.fromtimestamp(hit.wall, UTC).strftime("%H:%M:%S")
        assert abs(seconds_of(time) - seconds_of(sent)) <= 1
        assert [each.partition(":")[0] for each in sentences] == ["why", "pause", "answer"]
        why, pause, answer = sentences
        check_why(days, hit, why)
        check_pause(hit, before, pause)
        check_answer(hit, [later for later in days.of(host) if later.wall > hit.wall], answer)


def seconds_of(time):
    hours, minutes, rest = map(int, time.split(":"))
    return hours * 3600 + minutes * 60 + rest


def check_why(days, hit, said):
    leads = [
        each
        for each in days.hits
        if 300 <= each.status < 400
        and each.wall <= hit.wall
        and url_of(hit) in dict(each.answer).values()
    ]
    if "led here" in said:
        assert leads
        assert "a redirect of another host led here" in said
    if "robots.txt is asked for before anything else" in said:
        assert hit.path == "/robots.txt"
        assert "led here" not in said
    elif "a robots.txt is read there" in said:
        assert leads[-1].path == "/robots.txt"
    elif "allows it" in said:
        assert "line 2 of robots.txt allows it, 'Allow: /feed'" in said
        assert hit.host == "new.example"
    else:
        assert "no rule of robots.txt is about it" in said


def url_of(hit):
    return f"http://{hit.host}{hit.path}"


def check_pause(hit, before, said):
    if before is None:
        assert said == "pause: our record has no request before it"
        return
    kept = hit.wall - before.wall - (before.ended - before.started)
    found = re.fullmatch(
        r"pause: (.+) after the end of the request before it; (.+) had to pass"
        r"(, as we had ended a hold by hand at [\d: -]+ UTC)?",
        said,
    )
    assert found, said
    assert found[1] == format_seconds(kept) or abs(seconds(found[1]) - kept) <= kept / 50
    asked = dict(before.answer).get("Retry-After")
    if asked is not None and found[3] is None:
        assert seconds(found[2]) >= float(asked)
    assert kept >= seconds(found[2]) - 0.05


def check_answer(hit, later, said):
    assert said.startswith(f"answer: {hit.status}, after ")
    held = re.search(r"; then on hold for ([^,]+)(?:, which we ended by hand after (.+))?$", said)
    assert bool(held) == (hit.status == 503)
    if held:
        ended = hit.wall + hit.ended - hit.started
        until = ended + seconds(held[2] or held[1]) * 0.98
        assert not [each for each in later if each.wall < until], said


def check_outlook(days, host, section, now):
    """Check what a letter says will come by what came; return its sentences."""
    later = [hit for hit in days.of(host) if hit.wall > BEGIN + now]
    said = " ".join(" ".join(section).split())
    if "on our blocklist" in said:
        assert later == []
        assert "not due" not in said
        assert "looks at it" not in said
    if "asked for only if another one redirects to it" in said:
        targets = [hit for hit in later if hit.path != "/robots.txt"]
        for hit in targets:
            check_why(
                days,
                hit,
                "led here: a redirect of another host led here; no rule of robots.txt is about it",
            )
    for until in re.findall(r"not due before ([\d: -]+) UTC", said):
        moment = datetime.fromisoformat(until).replace(tzinfo=UTC).timestamp()
        assert not [hit for hit in later if hit.wall < moment], said
    if "only if its robots.txt allows it" in said:
        assert {hit.path for hit in later} <= {"/robots.txt"}
    return said


def test_a_hold_that_was_released_is_told_with_its_release(days):
    found = days.letter("busy.example", 1 * HOUR, FIRST)
    check_requests(days, "busy.example", found["What we asked for"])
    text = " ".join(" ".join(found["What we asked for"]).split())
    assert "then on hold for 2 h, which we ended by hand after 38 s" in text
    assert "1 s had to pass, as we had ended a hold by hand at 2026-01-01 00:" in text


@pytest.mark.parametrize("host", ["led", "rules", "out", "deny", "old", "new"])
def test_what_was_asked_is_as_the_server_saw_it(days, host):
    found = days.letter(f"{host}.example", 1 * HOUR, FIRST, int(BEGIN // DAY))
    check_requests(days, f"{host}.example", found["What we asked for"])


def test_the_robots_txt_of_another_host_needs_no_permission(days):
    found = days.letter("rules.example", 1 * HOUR, FIRST)
    ((_, url, (why, *_)),) = words(found["What we asked for"])
    assert url == "http://rules.example/robots.txt"
    assert why.startswith("why: a robots.txt is read there")
    assert why.endswith("; a redirect of another host led here")


def test_the_end_of_a_killed_run_is_not_known(days):
    found = days.letter("killer.example", 16 * HOUR, ["http://killer.example/feed"])
    *_, (_, url, sentences) = words(found["What we asked for"])
    assert url == "http://killer.example/feed"
    assert sentences[-1].startswith(
        "answer: not known: the request is out, or the crawl was killed"
    )


def test_what_comes_next_is_what_came(days):
    """The letters are of the first afternoon; the run of the next day is what came."""
    left = [url for url in FIRST if url != REMOVED]
    now = 16 * HOUR
    hosts = ("busy", "led", "rules", "out", "deny", "old", "new")
    letters = {host: days.letter(f"{host}.example", now, left) for host in hosts}
    days.run(DAY + 2 * HOUR, left, busy=feed(), is_listed=True)
    said = {
        host: check_outlook(days, f"{host}.example", letters[host][OUTLOOK], now) for host in hosts
    }
    assert "on our blocklist" in said["out"]
    assert "asked for only if another one redirects to it" in said["new"]
    assert [hit.path for hit in days.of("new.example")][-1] == "/feed", "it was redirected to"
    assert "and then only if its robots.txt allows it" in said["deny"]
    assert "no source of ours is declared here" in said["rules"]
