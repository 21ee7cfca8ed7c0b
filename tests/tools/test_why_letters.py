"""`walsh why` on odd days: each row and line of each letter is true by the logs of the servers.

A hold that the operator ended, hosts that opt out, killed runs, redirects across hosts, a removed
source, a clock that was set, a domain that is paced as one.
"""

import contextlib
import hashlib
import os
import pickle
import re
import signal
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import pytest
from scrapy.settings import Settings

from tests.helpers.sites import IDENTITY, LIST_URL, blocklist, feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulated import LATENCY
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.why import Days, read_account
from walsh_scrapy.tools.why.letter import letter

#: When the simulated runs begin: 2026-01-01.
BEGIN = 1_767_225_600.0
HOUR = 3600.0
RULES = "User-agent: *\nAllow: /feed\nDisallow: /private\n"
SHUT = "User-agent: *\nDisallow: /\n"
SHARED = "User-agent: *\nDisallow:\n"
PRIVATE = "http://deny.example/private"
REASON = "its owner asked us to go on"


def refused(seconds):
    return Reply(status=503, headers={"Retry-After": str(int(seconds))})


def url(name):
    return f"http://{name}.example/feed"


def web(*, busy="", shut=RULES, ill=RULES):
    return [
        Site("ill.example", ill, {"/feed": feed()}),
        Site("forbid.example", Reply(status=403), {"/feed": feed()}),
        Site("busy.example", "", {"/feed": busy or feed()}),
        Site("led.example", redirect("http://rules.example/for-led.txt"), {"/feed": feed()}),
        Site("rules.example", SHUT, {"/for-led.txt": SHARED}),
        site("out.example"),
        Site("deny.example", RULES, {"/private": feed()}),
        Site("old.example", "", {"/feed": redirect(url("new"), 302)}),
        Site("new.example", RULES, {"/feed": feed()}),
        Site("gone.example", "", {"/feed": Reply(status=410)}),
        Site("late.example", "", {"/feed": redirect(url("led"), 302)}),
        Site("later.example", "", {"/feed": redirect(url("gone"), 302)}),
        Site("shut.example", shut, {"/feed": feed(), "/news": feed()}),
    ]


def test_each_row_of_a_letter_is_true_on_odd_days(simulated, tmp_path):
    """Two days, and the run that came afterwards."""
    world = World(simulated, tmp_path, WALSH_ROBOTS_UNREACHABLE="phased")
    hosts = [*(site.host for site in web()), "killer.example", "operator.example"]
    first = [
        *map(url, ("ill", "forbid", "busy", "led", "out", "old", "new", "gone", "shut")),
        PRIVATE,
    ]

    world.run(0.0, first, *web(busy=refused(7200)))
    world.write_letters(30.0, hosts)
    (hold,) = (exchange for exchange in world.seen if exchange.hit.status == 503)
    world.release("busy.example", hold.end + 38.0)
    world.run(600.0, first, *web())
    world.write_letters(HOUR, hosts)

    remaining = [address for address in first if address != url("new")]
    world.run(12 * HOUR, [*remaining, url("late"), url("later")], *web(), listed=("out.example",))
    world.write_letters(13 * HOUR, hosts)
    world.run(15 * HOUR, [url("killer")], listed=("out.example",), dies=url("killer"))
    died = world.seen[-1].hit.wall - BEGIN
    world.write_letters(died + 10.0, hosts)
    world.run(16 * HOUR, [*remaining, url("killer")], *web(), site("killer.example", ""),
              listed=("out.example",))  # fmt: skip
    world.write_letters(17 * HOUR, hosts)

    world.slow("led.example", 18 * HOUR, 60.0)
    world.write_letters(19 * HOUR, hosts)
    news = "http://shut.example/news"
    world.run(DAY + 2 * HOUR, [news], *web(shut=SHUT), listed=("out.example",))
    world.run(
        DAY + 3 * HOUR,
        [*remaining, url("late"), news],
        *web(shut=SHUT, ill=Reply(status=500)),
        listed=("out.example",),
    )
    world.write_letters(DAY + 4 * HOUR, hosts)
    world.write_letters(DAY + 4 * HOUR, hosts, day="2026-01-01")
    world.slow("led.example", 2 * DAY, 0.0)
    world.run(2 * DAY + 4 * HOUR, [*remaining, url("late"), news], *web(shut=SHUT))
    world.write_letters(2 * DAY + 5 * HOUR, hosts)
    world.check_letters()
    text = "\n".join(letter.text for letter in world.letters)
    denied = ("denied by blocklist", "line 3: Disallow: /private")
    for words in (
        *denied,
        "ended the hold then",
        "on our blocklist",
        "was killed",
        "redirected to",
    ):
        assert words in text


def test_a_source_may_be_a_robots_txt(simulated, tmp_path):
    world = World(simulated, tmp_path)
    sources = ["http://deny.example/robots.txt", "http://shut.example/robots.txt"]
    world.run(0.0, sources, *web(shut=SHUT))
    world.write_letters(HOUR, ["deny.example", "shut.example"])
    world.check_letters()


def test_no_gap_is_shown_across_a_clock_change(simulated, tmp_path):
    world = World(simulated, tmp_path)
    for hour in (10, 9):
        world.run(hour * HOUR, [url("busy"), url("shut")], *web())
    world.write_letters(11 * HOUR, ["busy.example", "shut.example"])
    world.check_letters()
    assert "a clock was set" in world.letters[0].text


def test_letter_to_the_host_of_the_blocklist(simulated, tmp_path):
    """It asks for three days, and then lists itself."""
    world, host = World(simulated, tmp_path), "operator.example"
    world.run(0.0, [url("busy")], *web())
    world.run(7 * HOUR, [url("led")], *web(), list_page=refused(3 * DAY))
    world.write_letters(8 * HOUR, [host])
    world.run(33 * HOUR, [url("busy")], *web(), listed=(host,))
    world.write_letters(34 * HOUR, [host])
    world.run(48 * HOUR, [url("busy")], *web(), listed=(host,))
    world.write_letters(49 * HOUR, [host])
    world.check_letters()


def test_a_domain_that_is_paced_as_one_on_odd_days(simulated, tmp_path):
    """One of its hosts refuses; another one has opted out, in a project that follows links."""
    world = World(simulated, tmp_path, WALSH_PACE_BY="domain", **IDENTITY)
    hosts = ["one.pair.com", "two.pair.com", "shut.pair.com"]
    sites = [site("one.pair.com"), Site("two.pair.com", "", {"/feed": [refused(7200), feed()]})]
    sites.append(Site("shut.pair.com", SHUT, {"/feed": feed()}))
    sources = [f"http://{host}/feed" for host in hosts]
    world.run(0.0, sources, *sites)
    world.write_letters(60.0, hosts)
    world.write_letters(HOUR, hosts)
    world.run(3 * HOUR, sources, *sites)
    world.write_letters(3.5 * HOUR, hosts)
    world.write_letters(9 * HOUR, ["shut.pair.com"])
    world.run(10 * HOUR, sources, *sites)
    world.check_letters()


# The judge. It knows what the servers saw, what they answered, and what was done by hand.


class Seen(NamedTuple):
    """A request as its server saw it, in epoch seconds."""

    run: int
    hit: Hit
    end: float | None  #: None if its crawl was killed before it

    @property
    def retry_after(self):
        return float(self.hit.answered("Retry-After") or 0.0)


class Run(NamedTuple):
    """A run: its start, its sources, the sites, and the listed hosts."""

    at: float
    sources: list
    sites: dict
    listed: tuple


def noted(file, reply, hit):
    """Answer, or end the machine of the crawl without an answer; a file has the hit anyway."""
    with file.open("ab") as log:
        pickle.dump(replace(hit, status=reply.status if reply else 0), log)
    return reply or os.kill(os.getpid(), signal.SIGKILL)


class World:
    """Sites, what their servers saw of all runs, in its order, and the letters about them."""

    def __init__(self, simulated, folder, **settings):
        self._simulated = simulated
        self._killed = folder / "killed"
        self._file = f"sqlite:///{folder / 'simulation' / 'walsh.sqlite3'}"
        self.settings = {"WALSH_BLOCKLIST_URL": LIST_URL, **settings}
        self.options = Options.from_settings(Settings(self.settings))
        self.seen, self.runs, self.letters = [], [], []
        self.releases, self.delays = [], []

    def run(self, at, sources, *sites, listed=(), dies=None, list_page=None):
        """Crawl; `dies` is the URL at whose request the machine of the crawl loses its power."""
        page = list_page or blocklist("else.example", *listed)
        sites = [*sites, site("operator.example", **{"blocklist.json": page})]
        crawl = partial(self._simulated, sources=sources, starts=[at], settings=self.settings)
        if dies:
            note = partial(noted, self._killed)
            sites.append(
                Site(host_in(dies), partial(note, Reply()), {"/feed": partial(note, None)})
            )
        self.runs.append(Run(BEGIN + at, sources, {site.host: site for site in sites}, listed))
        if not dies:
            (done,) = crawl(*sites)
            assert done.exit_code == 0, done.stderr
            for hit in done.log:
                self.seen.append(Seen(len(self.runs), hit, hit.wall + hit.ended - hit.started))
            return
        with pytest.raises(RuntimeError):
            crawl(*sites)
        with self._killed.open("rb") as log, contextlib.suppress(EOFError):
            while hit := pickle.load(log):
                end = None if hit.path == "/feed" else hit.wall + LATENCY
                self.seen.append(Seen(len(self.runs), hit, end))
        self._killed.unlink()

    def state(self, now):
        return contextlib.closing(State(self._file, lambda: now))

    def release(self, host, at):
        with self.state(at) as state:
            state.hosts.release(host, REASON)
        self.releases.append((host, at))

    def slow(self, host, at, delay):
        with self.state(BEGIN + at) as state:
            state.hosts.set_delay(host, delay, REASON)
        self.delays.append((host, BEGIN + at, delay))

    def unit(self, host):
        return self.options.pace_by.unit_of(host)

    def write_letters(self, at, hosts, day=None):
        """Write letters to those of the hosts that are known by then."""
        known = {exchange.hit.host for exchange in self.seen} | set(
            map(host_in, self.runs[-1].sources)
        )
        for host in hosts:
            if host in known:
                with self.state(BEGIN + at) as state:
                    days = day and Days(day, day)
                    lines = list(letter(read_account(state, self.options, host, days)))
                self.letters.append(Letter(self, host, BEGIN + at, lines))

    def check_letters(self):
        for judge in self.letters:
            judge.check()

    def body(self, run, robots_url):
        """The robots.txt that a server gave in a run; None for a status without a file."""
        if robots_url.endswith("/for-led.txt"):
            return SHARED
        page = self.runs[run - 1].sites.get(host_in(robots_url))
        reply = page and page.robots
        if callable(reply):
            return ""
        return reply if isinstance(reply, str) else None


def host_in(address):
    return address.split("/")[2]


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def seconds(text):
    units = {"d": DAY, "h": HOUR, "min": 60.0, "s": 1.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))


def is_near(text, value):
    """Whether a duration in words is a value: they have its two largest units, and no more."""
    smallest = {"d": DAY, "h": HOUR, "min": 60.0, "s": 1.0}[text.split()[-1]]
    return -0.6 <= value - seconds(text) <= (smallest if value >= 60.0 else 0.6)


class Letter:
    """A letter, and the judge of each part of it."""

    def __init__(self, world, host, now, lines):
        self.world, self.host, self.now = world, host, now
        self.text = "\n".join(lines)
        self.day = re.match(r"Requests of \S+ to \S+ on (\S+),", lines[0])[1]
        parts = [part.split("\n") for part in self.text.split("\n\n")]
        self.parts = {part[0].strip().partition(",")[0].partition("  ")[0]: part for part in parts}
        begin = moment(f"{self.day} 00:00:00")
        self.sent = [
            number
            for number, exchange in enumerate(world.seen)
            if exchange.hit.host == host and begin <= exchange.hit.wall < min(now, begin + DAY)
        ]
        # A clock that was set changes the order of the times.
        self.sent.sort(key=lambda number: world.seen[number].hit.wall)

    def check(self):
        """Fail for the first part that is not true."""
        try:
            self.check_requests()
            self.check_robots()
            self.check_overrides()
            self.check_next()
            self.check_keep_out()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.host}, as of {self.now}\n{self.text}") from error

    def table(self, heading, columns=6):
        """The rows below a line of headings, and the other lines of its part."""
        part = self.parts.get(heading, [])
        heads = [number for number, line in enumerate(part) if line.split()[-1:] == ["url"]]
        if not heads:
            return [], part
        head = part[heads[0]]
        starts = [match.start() for match in re.finditer(r"(?<=  )\S+( \S+)*", head)]
        ends = [*starts[1:], None]
        assert len(starts) == columns
        rest = part[heads[0] + 1 :]
        rows = [
            line for line in rest if re.search(r"http://\S+$", line) and line[starts[-1]] == "h"
        ]
        cells = [[row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in rows]
        return cells, part[: heads[0]] + [line for line in rest if line not in rows]

    # ---- the requests ----

    def check_requests(self):
        rows, notes = self.table("time")
        sent = [row for row in rows if row[1] != "not sent"]
        assert len(sent) == len(self.sent)
        for row, number in zip(sent, self.sent, strict=True):
            own = [note.split("  ", 2)[2] for note in notes if note[2:10] == row[0]]
            self.check_request(row, number, [note for note in own if "opted out" not in note])
        for time, answer, gap, required, decision, address in rows:
            if answer == "not sent":
                assert (gap, required) == ("", "")
                self.check_denial(time, decision, address)
        assert bool(sent) != ("No request was sent." in self.text)

    def check_request(self, row, number, notes):
        seen, world = self.world.seen[number], self.world
        time, answer, gap, required, decision, address = row
        assert abs(moment(f"{self.day} {time}") - seen.hit.wall) <= 1.0
        assert address == seen.hit.url
        assert answer == ("unknown" if seen.end is None else str(seen.hit.status))
        before = [e for e in world.seen[:number] if self.unit_of(e) == world.unit(self.host)]
        walls = [exchange.hit.wall for exchange in world.seen]
        if walls != sorted(walls):
            assert gap == "a clock was set" or (gap == "first in our log" and not before)
        else:
            self.check_gap(seen, before, gap, required)
        self.check_decision(seen, before, decision)
        led = [e for e in world.seen[:number] if leads(e, seen)]
        self.check_notes(number, before, led, notes)

    def unit_of(self, seen):
        return self.world.unit(seen.hit.host)

    def check_gap(self, seen, before, gap, required):
        if not before:
            assert gap == "first in our log"
        elif before[-1].end is None:
            assert gap.endswith("unknown")
        else:
            waited = seen.hit.wall - max(e.end for e in before if e.end is not None)
            assert is_near(gap, waited)
            slack = 0.06 if seconds(required) < 10.0 else 0.6  # by which the words are rounded
            assert self.least_wait(seen, before) - slack <= seconds(required) <= waited + slack

    def least_wait(self, seen, before):
        """The seconds that had to pass by the last answer, unless a hold was ended by hand."""
        last = before[-1]
        is_lifted = any(last.end <= at < seen.hit.wall for _, at in self.world.releases)
        hold = 0.0 if is_lifted else last.retry_after
        return max(1.0, min(hold, DAY) if self.host == "operator.example" else hold)

    def check_decision(self, seen, before, decision):
        hit = seen.hit
        decision, read_at = re.fullmatch(r"(.*?)(?: \(of ([\d: -]+)\))?", decision).groups()
        if read_at:
            at = self.moment(read_at)
            assert any(abs(e.end - at) <= 1.0 for e in before if e.hit.path == "/robots.txt")
        if hit.path in ("/robots.txt", "/for-led.txt"):
            assert decision == "robots.txt itself"
        elif line := re.fullmatch(r"line (\d+): (Allow: (\S*))", decision):
            assert self.robots_lines(seen)[int(line[1]) - 1] == line[2]
            assert hit.path.startswith(line[3])
        elif status := re.fullmatch(r"no robots\.txt \((\d+)\)", decision):
            (*_, robots) = (e.hit for e in before if e.hit.url == f"http://{self.host}/robots.txt")
            assert robots.status == int(status[1])
        else:
            assert decision == "no rule matches"
            assert f": {hit.path}" not in self.robots_lines(seen)

    def robots_lines(self, seen):
        return (self.world.body(seen.run, f"http://{self.host}/robots.txt") or "").splitlines()

    def check_denial(self, time, decision, address):
        at = moment(f"{self.day} {time}")
        near = [
            exchange.hit.url for exchange in self.world.seen if abs(exchange.hit.wall - at) < 60.0
        ]
        assert address not in near
        runs = [run for run in self.world.runs if run.at <= at + 1.0]
        if decision == "denied by blocklist":
            assert self.host in runs[-1].listed
        else:
            number, rule = re.fullmatch(r"line (\d+): (.*)", decision).groups()
            file = f"http://{self.host}/robots.txt"
            texts = [self.world.body(run, file) for run, _ in enumerate(runs, 1)]
            assert rule in {(text or "").splitlines()[int(number) - 1] for text in texts if text}

    def check_notes(self, number, before, led, notes):
        """Each note is true, and nothing that is special has none."""
        seen = self.world.seen[number]
        if led:
            own = [exchange.hit.url for exchange in led if exchange.hit.host == self.host]
            wanted = ", for its robots.txt" if led[-1].hit.path == "/robots.txt" else ""
            note = f"redirected here by {own[0] if own else 'another site'}{wanted}"
            if note in notes or seen.hit.url not in self.world.runs[seen.run - 1].sources:
                notes.remove(note)
        if seen.end is None:
            notes.remove(next(note for note in notes if "in flight" in note))
        holding = [e for e in before if e.end and self.held_until(e) > max_end(before)]
        if holding and self.held_until(holding[-1]) > seen.hit.wall:
            notes.remove(next(note for note in notes if "by at most a day" in note))
        waited = [note for note in notes if note.startswith("on hold until")]
        assert len(waited) == 1 or not (holding or waited)
        for note in waited:
            self.check_wait(holding or before[-1:], note)
            notes.remove(note)
        followers = [n for n in self.sent if n > number]
        after = [
            n
            for n, e in enumerate(self.world.seen)
            if n > number and self.unit_of(e) == self.world.unit(self.host)
        ]
        is_refused = seen.retry_after or (seen.hit.status >= 500 and seen.hit.path == "/robots.txt")
        if is_refused and (not followers or after[0] != followers[0]):
            held_for, _, end = (
                notes.pop().removeprefix("then on hold for ").partition("; the operator ended that")
            )
            assert not seen.retry_after or is_near(held_for, seen.retry_after)
            assert bool(end) == (self.released_at(seen) is not None)
        assert notes == []

    def released_at(self, seen):
        """When the operator ended the hold of an exchange, if that was before the letter."""
        ends = [
            at
            for _, at in self.world.releases
            if seen.end <= at < min(seen.end + seen.retry_after, self.now)
        ]
        return ends[0] if ends else None

    def held_until(self, seen):
        return self.released_at(seen) or seen.end + seen.retry_after

    def check_wait(self, holding, note):
        """The hold began with one of these answers, and lasts as long as that asked for."""
        shared = re.fullmatch(r"on hold until (.+), as all hosts of pair\.com", note)
        if shared:
            (cause,) = (exchange for exchange in holding if exchange.hit.host != self.host)
            assert abs(cause.end + cause.retry_after - self.moment(shared[1])) <= 1.0
            return
        until, status, at, rest = re.fullmatch(
            r"on hold until (.+), because of the (\d+) of (.{8}|.{19})(; the operator ended .+)?",
            note,
        ).groups()
        (cause,) = (
            exchange for exchange in holding if abs(exchange.hit.wall - self.moment(at)) <= 1.0
        )
        assert cause.hit.host == self.host
        assert bool(rest) == (self.released_at(cause) is not None)
        assert cause.hit.status == int(status)
        assert cause.hit.status in (429, 503) or cause.hit.status >= 500
        if cause.retry_after:
            assert abs(self.held_until(cause) - self.moment(until)) <= 1.0

    def moment(self, text):
        return moment(text if len(text) == 19 else f"{self.day} {text}")

    # ---- robots.txt, and what was done by hand ----

    def check_robots(self):
        for line in self.parts.get("The robots.txt that we obeyed", [])[2:]:
            at, answer, digest, address, target = re.fullmatch(
                r"  (.{19})  (.+?)  +(\w{64}|no file) +(\S+?)(?:, which redirected to (\S+))?", line
            ).groups()
            (read,) = (
                exchange
                for exchange in self.world.seen
                if exchange.end and abs(exchange.end - moment(at)) <= 1.0
                if exchange.hit.url == (target or address)
            )
            assert address == f"http://{self.host}/robots.txt"
            assert answer.startswith(str(read.hit.status))
            bodies = [self.world.body(run, target or address) for run in range(1, read.run + 1)]
            if read.hit.status < 300:
                assert digest == hashlib.sha256(bodies[-1].encode()).hexdigest()
            elif read.hit.status >= 500:
                good = {hashlib.sha256(body.encode()).hexdigest() for body in bodies if body}
                assert digest in good
            else:
                assert digest == "no file"

    def check_overrides(self):
        lines = self.parts.get("What we changed by hand", [])[2:]
        overrides = [*self.world.releases, *((host, at) for host, at, _ in self.world.delays)]
        ours = sorted(at for host, at in overrides if host == self.host and at <= self.now)
        assert [line[2:21] for line in lines] == [shown(at) for at in ours]
        assert all(line.endswith(REASON) for line in lines)
        assert sum("ended a hold" in line for line in lines) == sum(
            host == self.host and at <= self.now for host, at in self.world.releases
        )

    # ---- what comes next ----

    def later(self, address=None, *, by_itself=False):
        """The requests after the letter: to the unit of the host, or to a URL."""
        return [
            exchange.hit.wall
            for number, exchange in enumerate(self.world.seen)
            if exchange.hit.wall > self.now and self.unit_of(exchange) == self.world.unit(self.host)
            if address in (None, exchange.hit.url)
            if not (by_itself and any(leads(e, exchange) for e in self.world.seen[:number]))
        ]

    def check_next(self):
        rows, lines = self.table("What comes next", 4)
        runs = [run for run in self.world.runs if run.at <= self.now]
        is_listed = self.host in runs[-1].listed
        for not_before, _, _, address in rows:
            assert address in runs[-1].sources
            until = {"now": 0.0, "never": self.now + 30 * DAY}.get(not_before)
            until = moment(not_before) if until is None else until
            earlier = [at for at in self.later(address, by_itself=True) if at < until - 1.0]
            assert not earlier or earlier[0] >= self.lifted(until)
        for line in lines[1:]:
            self.check_line(line.strip(), rows, is_listed=is_listed)
        assert is_listed == ("nothing will be requested" in self.text)
        assert is_listed or "A redirect from" in self.text
        ours = [address for address in runs[-1].sources if host_in(address) == self.host]
        assert sorted(ours) == sorted(row[-1] for row in rows) or (is_listed and not rows)

    def check_line(self, line, rows, *, is_listed):
        if match := re.match(r"No request before (.{19}); ", line):
            until = self.lifted(moment(match[1]))
            assert not [at for at in self.later() if at < until - 1.0]
        elif line.startswith("We have no source"):
            assert not rows
        elif line.startswith("This host is on our blocklist"):
            assert is_listed
        elif line.startswith("Our blocklist is published"):
            assert self.host == "operator.example"
        elif line.startswith("This bot follows links"):
            assert self.world.options.scope == "any"
        else:
            assert line.startswith(("A redirect from", "About this host: "))

    def check_keep_out(self):
        """Lines for robots.txt are proposed unless the last one that was read denies everything."""
        file = f"http://{self.host}/robots.txt"
        runs = [
            exchange.run
            for exchange in self.world.seen
            if exchange.end and exchange.end <= self.now
            if exchange.hit.url == file and exchange.hit.status < 400
            if file not in self.world.runs[exchange.run - 1].sources
        ]
        is_shut = bool(runs) and self.world.body(runs[-1], file) == SHUT
        assert is_shut == ("add these lines" not in self.text)

    def lifted(self, until):
        """The end of a hold, of which a letter cannot know yet that it will be ended by hand."""
        if self.host == "operator.example":  # no hold delays the list for longer than a day
            holds = [e.end for e in self.world.seen if e.retry_after and e.hit.host == self.host]
            until = min([until, *(end + DAY for end in holds)])
        ends = [at for host, at in self.world.releases if host == self.host and at > self.now]
        return min([until, *ends])


def leads(one, other):
    return one.run == other.run and one.hit.answered("Location") == other.hit.url


def max_end(seen):
    return max(exchange.end for exchange in seen if exchange.end is not None)


def shown(at):
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
