"""`walsh why` on odd days: each sentence of each letter is true by the logs of the servers.

A hold that the operator ended, hosts that opt out, killed runs, redirects across hosts, a removed
source, a domain that is paced as one.
"""

import contextlib
import math
import os
import pickle
import re
import signal
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest
from scrapy.settings import Settings

from tests.helpers.sites import IDENTITY, LIST_URL, blocklist, feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulated import LATENCY
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.why.account import give_account
from walsh_scrapy.tools.why.letter import letter

RULES = "User-agent: *\nAllow: /feed\nDisallow: /private\n"


def refused(seconds):
    return Reply(status=503, headers={"Retry-After": str(int(seconds))})


def url(name):
    return f"http://{name}.example/feed"


PRIVATE = "http://deny.example/private"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A sentence is one line."""
    monkeypatch.setattr("walsh_scrapy.tools.why.letter.WIDTH", 10_000)


def web(*, busy="", shut=RULES, ill=RULES):
    return [
        Site("ill.example", ill, {"/feed": feed()}),
        Site("forbid.example", Reply(status=403), {"/feed": feed()}),
        Site("busy.example", "", {"/feed": busy or feed()}),
        Site("led.example", redirect("http://rules.example/for-led.txt"), {"/feed": feed()}),
        Site("rules.example", SHUT, {"/for-led.txt": "User-agent: *\nDisallow:\n"}),
        site("out.example"),
        Site("deny.example", RULES, {"/private": feed()}),
        Site("old.example", "", {"/feed": redirect(url("new"), 302)}),
        Site("new.example", RULES, {"/feed": feed()}),
        Site("gone.example", "", {"/feed": Reply(status=410)}),
        Site("late.example", "", {"/feed": redirect(url("led"), 302)}),
        Site("later.example", "", {"/feed": redirect(url("gone"), 302)}),
        Site("shut.example", shut, {"/feed": feed(), "/news": feed()}),
    ]


def test_each_sentence_of_a_letter_is_true_on_odd_days(simulated, tmp_path):
    """Two days, and the run that came afterwards."""
    world, told = World(simulated, tmp_path, WALSH_ROBOTS_UNREACHABLE="phased"), []
    hosts = [*(each.host for each in web()), "killer.example", "operator.example"]
    first = [
        *map(url, ("ill", "forbid", "busy", "led", "out", "old", "new", "gone", "shut")),
        PRIVATE,
    ]

    world.run(0.0, first, *web(busy=refused(7200)))
    told += world.letters(30.0, hosts)
    (hold,) = (each for each in world.seen if each.hit.status == 503)
    world.release("busy.example", hold.end + 38.0)
    world.run(600.0, first, *web())
    told += world.letters(HOUR, hosts)

    left = [each for each in first if each != url("new")]
    world.run(12 * HOUR, [*left, url("late"), url("later")], *web(), listed=("out.example",))
    told += world.letters(13 * HOUR, hosts)
    world.run(15 * HOUR, [url("killer")], listed=("out.example",), dies=url("killer"))
    died = world.seen[-1].hit.wall - BEGIN
    told += world.letters(died + 10.0, hosts)
    world.run(16 * HOUR, [*left, url("killer")], *web(), site("killer.example", ""),
              listed=("out.example",))  # fmt: skip
    told += world.letters(17 * HOUR, hosts)

    world.slow("led.example", 18 * HOUR, 60.0)
    told += world.letters(19 * HOUR, hosts)
    news = "http://shut.example/news"
    world.run(DAY + 2 * HOUR, [news], *web(shut=SHUT), listed=("out.example",))
    world.run(
        DAY + 3 * HOUR,
        [*left, url("late"), news],
        *web(shut=SHUT, ill=Reply(status=500)),
        listed=("out.example",),
    )
    told += world.letters(DAY + 4 * HOUR, hosts)
    told += world.letters(DAY + 4 * HOUR, hosts, day=int(BEGIN // DAY))
    world.slow("led.example", 2 * DAY, 0.0)
    world.run(2 * DAY + 4 * HOUR, [*left, url("late"), news], *web(shut=SHUT))
    told += world.letters(2 * DAY + 5 * HOUR, hosts)

    for each in told:
        each.check()
    text = "\n".join(each.text for each in told)
    for said in (
        "then on hold for 2 h, which we ended by hand after 38 s",
        "(required: 1 s), as we had ended a hold by hand at 2026-01-01 00:00:40 UTC",
        "it is read as the robots.txt of the host that redirected there; a redirect of another",
        "on our blocklist, so nothing is requested while it is listed",
        "no longer a source",
        "as a request is out, or its crawl was killed",
    ):
        assert said in text


def test_the_list_s_own_host_on_odd_days(simulated, tmp_path):
    """It asks for three days, and then lists itself."""
    world, told, host = World(simulated, tmp_path), [], "operator.example"
    world.run(0.0, [url("busy")], *web())
    world.run(7 * HOUR, [url("led")], *web(), list_page=refused(3 * DAY))
    told.append(world.letter(host, 8 * HOUR))
    world.run(33 * HOUR, [url("busy")], *web(), listed=(host,))
    told.append(world.letter(host, 34 * HOUR))
    world.run(48 * HOUR, [url("busy")], *web(), listed=(host,))
    told.append(world.letter(host, 49 * HOUR))
    for each in told:
        each.check()


def test_a_domain_that_is_paced_as_one_on_odd_days(simulated, tmp_path):
    """One of its hosts refuses; another one has opted out, in a project that follows links."""
    world = World(simulated, tmp_path, WALSH_PACE_BY="domain", **IDENTITY)
    hosts = ["one.pair.com", "two.pair.com", "shut.pair.com"]
    sites = [site("one.pair.com"), Site("two.pair.com", "", {"/feed": [refused(7200), feed()]})]
    sites.append(Site("shut.pair.com", SHUT, {"/feed": feed()}))
    sources = [f"http://{host}/feed" for host in hosts]
    told = []
    world.run(0.0, sources, *sites)
    told += world.letters(60.0, hosts)
    told += world.letters(HOUR, hosts, knows_sources=False)
    world.run(3 * HOUR, sources, *sites)
    told += world.letters(3.5 * HOUR, hosts, knows_sources=False)
    told.append(world.letter("shut.pair.com", 9 * HOUR, knows_sources=False))
    assert "no hold and no delay keeps us from it; each gate" in told[-1].text
    world.run(10 * HOUR, sources, *sites)
    for each in told:
        each.check()


# Odd days, and letters about them: each sentence of a letter is judged by the servers' logs.
#
# Whatever `walsh why` says of what a server saw, or will see, has a judge in `Letter`. A sentence
# that has none fails.

#: When the simulated runs begin: 2026-01-01.
BEGIN = 1_767_225_600.0
HOUR = 3600.0
SHUT = "User-agent: *\nDisallow: /\n"
UNITS = {"d": DAY, "h": HOUR, "min": 60.0, "s": 1.0}
SECONDS = r"((?:[\d.]+ (?:d|h|min|s) ?)+)"
MOMENT = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC"


def noted(file, reply, hit):
    """Answer, or end the machine of the crawl without an answer; a file has the hit anyway."""
    with file.open("ab") as log:
        pickle.dump(replace(hit, status=reply.status if reply else 0), log)
    return reply or os.kill(os.getpid(), signal.SIGKILL)


def seconds(text):
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))


def is_near(text, value):
    """Whether a duration in words is a value: they have its two largest units, and no more."""
    cut = UNITS[text.split()[-1]] if value >= 60.0 else 0.6
    return -0.6 <= value - seconds(text) <= cut


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Seen(NamedTuple):
    """A request as its server saw it, in epoch seconds."""

    run: int
    hit: Hit
    end: float | None  #: None if its crawl was killed before it

    @property
    def retry_after(self):
        asked = self.hit.answered("Retry-After")
        return float(asked) if asked else 0.0


class World:
    """Sites, and what their servers saw of all runs, in its order."""

    def __init__(self, simulated, folder, **settings):
        self._simulated = simulated
        self._killed = folder / "killed"
        self._file = f"sqlite:///{folder / 'simulation' / 'walsh.sqlite3'}"
        self.settings = {"WALSH_BLOCKLIST_URL": LIST_URL, **settings}
        self.options = Options.from_settings(Settings(self.settings))
        self.seen, self.releases, self.delays = [], [], []
        self.runs = []  #: when each began, its sources, the text of each robots.txt, who is listed

    def run(self, at, sources, *sites, listed=(), dies=None, list_page=None):
        """Crawl; `dies` is the URL at whose request the machine of the crawl loses its power."""
        page = list_page or blocklist("else.example", *listed)
        sites = [*sites, site("operator.example", **{"blocklist.json": page})]
        texts = {each.host: each.robots for each in sites if isinstance(each.robots, str)}
        self.runs.append((BEGIN + at, sources, texts, listed))
        crawl = partial(self._simulated, sources=sources, starts=[at], settings=self.settings)
        if dies:
            host = dies.split("/")[2]
            note = partial(noted, self._killed)
            pages = {"/feed": partial(note, None)}
            with pytest.raises(RuntimeError):
                crawl(*sites, Site(host, partial(note, Reply()), pages))
            with self._killed.open("rb") as log, contextlib.suppress(EOFError):
                while hit := pickle.load(log):
                    end = None if hit.path == "/feed" else hit.wall + LATENCY
                    self.seen.append(Seen(len(self.runs), hit, end))
            self._killed.unlink()
            return
        (done,) = crawl(*sites)
        assert done.exit_code == 0, done.stderr
        for hit in done.log:
            self.seen.append(Seen(len(self.runs), hit, hit.wall + hit.ended - hit.started))

    def state(self, now):
        return contextlib.closing(State(self._file, lambda: now))

    def release(self, host, at):
        with self.state(at) as state:
            state.hosts.release(host, "its owner asked us to go on")
        self.releases.append((self.unit(host), at))

    def slow(self, host, at, delay):
        with self.state(BEGIN + at) as state:
            state.hosts.delay(host, delay, "its owner asked us to")
        self.delays.append((BEGIN + at, delay))

    def unit(self, host):
        return self.options.pace_by.unit_of(host)

    def letters(self, at, hosts, **how):
        """The letters of a moment to hosts that are known by then."""
        known = {each.hit.host for each in self.seen}
        known |= {each.split("/")[2] for each in self.runs[-1][1]}
        return [self.letter(host, at, **how) for host in hosts if host in known]

    def letter(self, host, at, day=None, *, knows_sources=True):
        declared = [Source(url) for url in self.runs[-1][1]] if knows_sources else None
        with self.state(BEGIN + at) as state, state.log() as log:
            account = give_account(state, log, self.options, host, day, declared)
            return Letter(self, host, BEGIN + at, list(letter(account)))


JUDGES = []


def says(pattern):
    """Register what judges a clause: a method that returns whether it is true."""
    filled = pattern.replace("SECONDS", SECONDS).replace("MOMENT", MOMENT)

    def register(method):
        JUDGES.append((re.compile(filled), method))
        return method

    return register


class Letter:
    """A letter, and the judges of its sentences."""

    def __init__(self, world, host, now, lines):
        self.world, self.host, self.now, self.lines = world, host, now, lines
        self.text = "\n".join(lines)

    def check(self):
        """Fail for the first sentence that is false, or that no judge knows."""
        world = self.world
        self.told, self.index, self.target, self.line = [], None, None, ""
        self.runs = [run for run in world.runs if run[0] <= self.now]
        self.declared = {url for url in self.runs[-1][1] if url.split("/")[2] == self.host}
        day = moment(f"{self.lines[1][3:13]} 00:00:00")
        self.day = [
            number
            for number, each in enumerate(world.seen)
            if each.hit.host == self.host and day <= each.hit.wall < min(self.now, day + DAY)
        ]
        begin = self.lines.index("Our requests")
        for line in self.lines[begin : self.lines.index("How to keep us out")]:
            if line and not line.startswith(" "):
                self.heading = line
            if re.match(r" *why: ", line) and "led here" not in line:
                assert not self.led or self.seen.hit.url in world.runs[self.seen.run - 1][1], line
            self.line = line.strip()
            for clause in self.line.split("; "):
                self._check(clause)
        assert self.told == self.day

    def _check(self, clause):
        for pattern, method in JUDGES:
            if found := pattern.fullmatch(clause):
                assert method(self, *found.groups()), f"{self.host}: {clause}\n{self.text}"
                return
        pytest.fail(f"nobody knows whether that is so: {clause!r}\n{self.text}")

    # What the servers know.

    @property
    def seen(self):
        return self.world.seen[self.index]

    @property
    def led(self):
        """The requests that were redirected to this one."""
        if self.index is None:
            return []
        before = self.world.seen[: self.index]
        return [each for each in before if self._leads(each, self.seen)]

    @staticmethod
    def _leads(one, other):
        return one.run == other.run and one.hit.answered("Location") == other.hit.url

    @property
    def before(self):
        """The requests before this one to what is paced with its host."""
        unit, before = self.world.unit(self.host), self.world.seen[: self.index]
        return [each for each in before if self.world.unit(each.hit.host) == unit]

    def later(self, url=None, after=None, *, by_itself=False):
        """The requests to the host, or to what is paced with it, after the letter or a moment."""
        unit = self.world.unit(self.host)
        return [
            each.hit.wall
            for number, each in enumerate(self.world.seen)
            if (each.hit.host == self.host if after is None else self._unit(each) == unit)
            and each.hit.wall > (after or self.now)
            and url in (None, each.hit.url)
            and not (by_itself and any(self._leads(e, each) for e in self.world.seen[:number]))
        ]

    def _unit(self, seen):
        return self.world.unit(seen.hit.host)

    @property
    def is_shut(self):
        """Whether the host has opted out of the document of this line."""
        path = self.target.partition(self.host)[2]
        if self.host == "ill.example":  # its robots.txt cannot be read at times
            seen = [each.hit for each in self.world.seen if each.hit.wall <= self.now]
            return [hit.status for hit in seen if hit.host == self.host][-1] == 500
        denied = [f"Disallow: {path}", "Disallow: /"]
        rules = self.runs[-1][2].get(self.host, "").splitlines()
        return self.host in self.runs[-1][3] or bool({*rules} & {*denied})

    # What the letter says of each request.

    @says(r"|The robots\.txt|Our .*|Requests that .*")
    def is_empty_or_a_heading(self):
        return True

    @says(r"(\d\d:\d\d:\d\d)  (\S+)")
    def is_a_request(self, time, url):
        at = moment(f"{self.lines[1][3:13]} {time}")
        if self.heading == "Requests that we kept back":
            self.index = None
            near = [each for each in self.world.seen if abs(each.hit.wall - at) < 60.0]
            return url not in {each.hit.url for each in near}
        self.index = self.day[len(self.told)]
        self.told.append(self.index)
        return self.seen.hit.url == url and abs(self.seen.hit.wall - at) <= 1.0

    @says(r"Nothing: no byte was sent\.")
    def is_nothing(self):
        return not self.day

    @says(r"why: robots\.txt is always fetched first")
    def is_its_own_robots_txt(self):
        return self.seen.hit.path == "/robots.txt" and not self.led

    @says(r"why: it is read as the robots\.txt of the host that redirected there")
    def is_a_robots_txt_elsewhere(self):
        return any(each.hit.path == "/robots.txt" for each in self.led)

    @says(r"why: our blocklist, or its schema, is published there")
    def is_the_list(self):
        return self.seen.hit.url == LIST_URL

    @says(r"why: line (\d+) of robots\.txt allows it, '(.*)'")
    def is_allowed(self, line, rule):
        _, _, texts, _ = self.world.runs[self.seen.run - 1]
        return texts[self.host].splitlines()[int(line) - 1] == rule

    @says(r"why: no rule of robots\.txt is about it")
    def is_free(self):
        _, _, texts, _ = self.world.runs[self.seen.run - 1]
        return f": {self.seen.hit.path}" not in texts.get(self.host, "")

    @says(r"why: its site gave no robots\.txt \((\d+)\), so no rule forbids it")
    def is_without_rules(self, status):
        robots = [e for e in self.before if e.hit.path == "/robots.txt"]
        return robots[-1].hit.status == int(status)

    @says(r"its host was not on our blocklist")
    def is_not_listed(self):
        return self.host not in self.world.runs[self.seen.run - 1][3]

    @says(r"a redirect of another host led here")
    def is_led(self):
        return bool(self.led) and all(each.hit.host != self.host for each in self.led)

    @says(r"a redirect of (http\S+) led here")
    def is_led_from(self, url):
        return url in {each.hit.url for each in self.led}

    @says(r"gap: our request log has no previous request(?: to (\S+))?")
    def is_first(self, unit):
        return not self.before and self._is_unit(unit)

    def _is_unit(self, unit):
        unit_of = self.world.unit(self.host)
        return unit == unit_of if unit else {self.host} >= {e.hit.host for e in self.before}

    @says(r"gap: not known, because the end of the previous request is not known")
    def is_after_a_killed_one(self):
        return self.before[-1].end is None

    @says(
        r"gap: SECONDS after the previous request(?: to (\S+))? \(required: SECONDS\)"
        r"(?:, as we had ended a hold by hand at MOMENT)?"
    )
    def is_kept(self, kept, unit, asked, ended_at):
        last = self.before[-1]
        if not (self._is_unit(unit) and is_near(kept, self.seen.hit.wall - last.end)):
            return False
        ends = [
            at
            for unit, at in self.world.releases
            if unit == self.world.unit(self.host) and last.end <= at < self.seen.hit.wall
        ]
        if ends:
            assert ended_at
            assert abs(moment(ended_at) - ends[0]) <= 1.0
        needed = 1.0 if ends or self.is_for_list else max(1.0, last.retry_after)
        slack = 0.06 if seconds(asked) < 10.0 else 0.6  # by which the words are rounded
        waited = self.seen.hit.wall - last.end
        return seconds(asked) >= needed and waited >= seconds(asked) - slack

    @property
    def is_for_list(self):
        return self.host == "operator.example"

    @says(r"answer: (\d+), after SECONDS")
    def is_answered(self, status, took):
        seen = self.seen
        return seen.hit.status == int(status) and is_near(took, seen.end - seen.hit.wall)

    @says(r"answer: not known: the request is in flight, or the crawl was killed before its end")
    def is_out(self):
        return self.seen.end is None

    @says(r"then (?:on hold|no request) for SECONDS(?:, which we ended by hand after SECONDS)?")
    def is_then_on_hold(self, held, ended):
        end = self.seen.end
        cause = max(*self.before, self.seen, key=lambda each: (each.end or 0.0) + each.retry_after)
        asked = cause.end + cause.retry_after - end
        assert asked <= 0.0 or is_near(held, asked)
        if ended:
            return any(is_near(ended, at - end) for _, at in self.world.releases)
        until = self._unless_ended(end + seconds(held), since=cause.end)
        return not [at for at in self.later(after=end) if at < until - 1.0]

    def _unless_ended(self, until, since):
        """The end of a hold of which a letter cannot know yet that it will be ended by hand."""
        if "no hold delays its requests by over 1 d" in self.text:
            until = min(until, since + DAY)
        ends = [at for unit, at in self.world.releases if unit == self.world.unit(self.host)]
        return min([until, *(at for at in ends if at > self.now)])

    @says(r"kept back by (robots|blocklist): (.+)")
    def is_kept_back(self, gate, why):
        if gate == "blocklist":
            return any(self.host in run[3] for run in self.runs)
        line = re.search(r"'(.+)'", why)[1]
        return any(line in run[2].get(self.host, "") for run in self.runs)

    # What it says of robots.txt, and of what was done by hand.

    @says(r"(http://\S+)/robots\.txt")
    def is_an_origin(self, origin):
        return origin == f"http://{self.host}"

    @says(r"fetched MOMENT: (\d+)(?:, (?:and|so) (.*))?")
    def is_asked_until(self, until, status, means):
        answers = {
            e.hit.status for e in self.world.seen if e.end and abs(e.end - moment(until)) < 1.5
        }
        earlier = [
            e.hit for e in self.world.seen if e.hit.host == self.host and e.hit.status == 200
        ]
        return (
            int(status) in answers
            and {
                None: status == "200",
                "no rule is in force": "400" <= status < "429",
                "the last file that it gave was this one": status >= "500" and earlier,
                "no earlier file is in force": status >= "500" and not earlier,
            }[means]
        )

    @says(r"SHA-256 \w+|\d+ \| (.*)")
    def is_quoted(self, line):
        texts = [text for run in self.world.runs for text in run[2].values()]
        return line is None or any(line in text for text in texts)

    @says(r"MOMENT  ended a hold that had SECONDS left: its owner asked us to go on")
    def is_ended_by_hand(self, at, _left):
        return any(abs(made - moment(at)) <= 1.0 for _, made in self.world.releases)

    @says(r"MOMENT  SECONDS at least between two requests from then on: its owner asked us to")
    def is_slowed(self, at, delay):
        ends = [end for end, _ in self.world.delays if end > moment(at)]
        return self._is_slow(moment(at), min(ends, default=math.inf), seconds(delay))

    @says(r"MOMENT  ended our delay: its owner asked us to")
    def is_slow_no_more(self, at):
        return (moment(at), 0.0) in self.world.delays

    # What it says of the days to come.

    @says(r"SECONDS at least between two requests, by our choice")
    def is_slow(self, delay):
        ends = [at for at, seconds in self.world.delays if at > self.now]
        return self._is_slow(self.now, min(ends, default=math.inf), seconds(delay))

    def _is_slow(self, since, until, delay):
        asked = [e for e in self.world.seen if e.hit.host == self.host and since < e.end < until]
        return all(one.hit.wall - last.end >= delay - 0.05 for last, one in pairwise(asked))

    @says(r"(http://\S+)")
    def is_a_target(self, url):
        self.target = url
        return True

    @says(r"on our blocklist, so nothing (but that list )?is requested while it is listed")
    def is_listed_now(self, but_list):
        listed = {n for n, run in enumerate(self.world.runs, 1) if self.host in run[3]}
        later = [e for e in self.world.seen if e.run in listed and e.hit.wall > self.now]
        asked = {e.hit.url for e in later if e.hit.host == self.host}
        return len(self.runs) in listed and asked <= ({LIST_URL} if but_list else set())

    @says(r"not requested while its host is on our blocklist")
    def is_on_the_list(self):
        return self.host in self.runs[-1][3]

    @says(r"our blocklist is published here: no hold delays its requests by over 1 d")
    def is_the_host_of_the_list(self):
        return self.is_for_list

    @says(r"on hold until MOMENT: (?:(\S+) is paced as one, and )?it answered (\d+) and asked .*")
    def is_on_hold(self, until, unit, status):
        causes = [
            each
            for each in self.world.seen
            if (self._unit(each) if unit else each.hit.host) == (unit or self.host)
            and (each.hit.status, each.end < self.now) == (int(status), True)
        ]
        until = self._unless_ended(moment(until), since=causes[-1].end)
        return not [at for at in self.later(after=self.now) if at < until - 1.0]

    @says(r"it began at MOMENT")
    def is_begin_of_hold(self, at):
        return any(e.retry_after and abs(e.end - moment(at)) <= 1.0 for e in self.world.seen)

    @says(r"not requested before MOMENT, (.+)")
    def is_not_before(self, at, why):
        unit = self.world.unit(self.host)
        *_, last = (e for e in self.world.seen if self._unit(e) == unit and e.hit.wall < self.now)
        is_out = why == "as a request is out, or its crawl was killed"
        assert is_out == (last.end is None)
        return not [each for each in self.later(after=self.now) if each < moment(at) - 1.0]

    @says(r"no source is declared here(?: any more)?")
    def is_undeclared(self):
        return not self.declared

    @says(r"no longer a source(, so it is not requested)?")
    def is_removed(self, never):
        return self.target not in self.declared and not (never and self.later(self.target))

    @says(r"a redirect of another site can lead us here too")
    def can_be_led(self):
        return self.host not in self.runs[-1][3]

    @says(r"gone permanently \(410\), so it is not requested")
    def is_gone(self):
        is_gone = any(e.hit.url == self.target and e.hit.status == 410 for e in self.world.seen)
        return is_gone and self._comes_only_by_redirects(DAY * 30)

    @says(r"(?:denied by (robots|blocklist): .*)")
    def is_denied(self, gate):
        return self.is_shut or gate == "blocklist"

    @says(r"not due before MOMENT \(.*?\)(, and then only .*)?")
    def is_not_due(self, at, only):
        assert bool(only) == self.is_shut, self.line
        return self._comes_only_by_redirects(moment(at) - self.now)

    def _comes_only_by_redirects(self, for_seconds):
        """Whether we do not ask by ourselves; if others lead us there, the letter says it."""
        url, until = self.target, self.now + for_seconds - 1.0
        led = [at for at in self.later(url) if at < until]
        assert not led or "a redirect of another site" in self.text
        return not [at for at in self.later(url, by_itself=True) if at < until]

    @says(r"due, so the next run looks at it(, and then only .*)?|due, and deferred until .*")
    def is_due(self, only):
        return bool(only) == self.is_shut

    @says(r"no hold and no delay keeps us from it")
    def is_open(self):
        unit = self.world.unit(self.host)
        seen = [e for e in self.world.seen if self._unit(e) == unit and e.hit.wall < self.now]
        return max(e.end + e.retry_after for e in seen) + 1.0 <= self.now

    @says(r"each gate decides again then")
    def is_asked_again(self):
        texts = [run[2].get(self.host, "") for run in self.world.runs]
        return SHUT not in texts or {e.hit.path for e in self.later()} <= {"/robots.txt"}
