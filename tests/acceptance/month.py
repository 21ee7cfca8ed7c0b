"""A month of an operator in simulated time: which of its troubles `walsh status` reports.

    python -m tests.acceptance.month FOLDER [DAYS]

240 feeds on 150 hosts, a crawl every two hours, and a look at the problems every hour, as a cron
job does it. `TROUBLES` has what goes wrong, and when. FOLDER gets the state. The result has each
look that had something to report.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from walsh_scrapy.policy.problems import changed_since, problems_of
from walsh_scrapy.state import State
from walsh_scrapy.testing.feeds import Post, rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.simulated import Simulation, simulate_here
from walsh_scrapy.testing.simulation import SimulatedTime
from walsh_scrapy.testing.site import Fault, Page, Reply, Site, redirect

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
LIST_URL: Final = "http://operator.example/blocklist.json"
HOSTS: Final = 150
#: Of the first hosts; each other host has one feed.
HOSTS_WITH_TWO: Final = 90
#: Hours from the start of a scheduler that stops, and until it starts again.
STOPPED: Final = (72, 108)
#: The hour of a crawl whose clock is five hours ahead.
CLOCK_AHEAD: Final = 118
#: Hours in which the disk of the exports is full.
DISK_FULL: Final = (144, 172)
#: Hours in which every site answers 403.
BANNED: Final = (12 * 24, 12 * 24 + 36)
#: The hour after which the blocklist is not served any more.
LIST_STOPS: Final = 18 * 24
#: The hour at which a source that is on hold is removed from the file.
REMOVED_AT: Final = 9 * 24
REMOVED: Final = "http://h106.example/feed"


def host(number: int) -> str:
    """Return the name of a host."""
    return f"h{number:03}.example"


def feed(number: int, hit: Hit) -> Page:
    """Return the feed of a host, with a new post each day."""
    day = int(hit.started // DAY)
    link = f"http://{host(number)}/"
    posts = [Post(f"Day {number}", f"{link}{number}") for number in (day, day - 1)]
    body = rss(f"Site {number}", posts, link)
    return Reply(body, content_type="application/rss+xml")


def from_day(day: float, page: Page, number: int, hit: Hit) -> Page:
    """Return another page from a day on."""
    return page if hit.started > day * DAY else feed(number, hit)


def in_days(first: float, last: float, page: Page, number: int, hit: Hit) -> Page:
    """Return another page in some days."""
    return page if first * DAY < hit.started < last * DAY else feed(number, hit)


def unless_banned(page: Page, hit: Hit) -> Page:
    """Return 403 while the address of the crawler is banned."""
    if BANNED[0] * HOUR <= hit.started < BANNED[1] * HOUR:
        return Reply("Forbidden.\n", 403)
    return page(hit) if callable(page) else page


def blocklist(hit: Hit) -> Page:
    """Return the list, until its server fails."""
    if hit.started > LIST_STOPS * HOUR:
        return Reply("Internal error.\n", 500)
    document = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-01-01T00:00:00Z",
        "refresh": "PT12H",
        "blocked": [{"domain": host(104), "added": "2026-01-01"}],
    }
    return Reply(json.dumps(document), content_type="application/json")


def _asking(status: int, days: float) -> Reply:
    return Reply("Later.\n", status, headers={"Retry-After": str(int(days * DAY))})


#: What goes wrong at one host: its page, and its robots.txt if that is not the usual one.
TROUBLES: Final[dict[int, Page]] = {
    90: Reply("Nothing here.\n", 404),
    91: partial(from_day, 5, Reply("Nothing here.\n", 404), 91),
    92: partial(from_day, 9, Reply("Internal error.\n", 500), 92),
    93: Reply(fault=Fault.CLOSE),
    94: Reply("<!DOCTYPE html><p>We moved.</p>", content_type="text/html"),
    95: Reply("Gone.\n", 410),
    96: _asking(429, 30),
    97: partial(in_days, 1, 1.2, _asking(503, 3), 97),
    98: partial(in_days, 2, 5, Reply(fault=Fault.CLOSE), 98),
    99: redirect(f"http://{host(100)}/feed", 301),
    101: partial(in_days, 4, 4.5, Reply("Busy.\n", 503), 101),
    106: partial(from_day, 1, _asking(429, 20), 106),
}
ROBOTS: Final[dict[int, Page]] = {
    102: Reply("Busy.\n", 503),
    103: "User-agent: *\nDisallow: /\n",
    105: "User-agent: *\nCrawl-delay: 300\n",
}
#: The hosts with a source that nobody reads for a week.
UNREAD: Final = frozenset(map(host, (90, 91, 92, 93, 94, 102, 103)))


def sites() -> Iterator[Site]:
    """Yield all sites of the month."""
    yield Site("operator.example", pages={"/blocklist.json": blocklist})
    for number in range(HOSTS):
        page = TROUBLES.get(number, partial(feed, number))
        names = ("feed", "more") if number < HOSTS_WITH_TWO else ("feed",)
        yield Site(
            host(number),
            ROBOTS.get(number, "User-agent: *\nDisallow: /private/\n"),
            {f"/{name}": partial(unless_banned, page) for name in names},
        )


def sources() -> list[str]:
    """Return the URLs of all feeds."""
    names = [(number, "feed") for number in range(HOSTS)]
    names += [(number, "more") for number in range(HOSTS_WITH_TWO)]
    return [f"http://{host(number)}/{name}" for number, name in names]


@dataclass(frozen=True)
class Look:
    """An hourly look at the problems that had something to report."""

    day: float
    changes: list[dict[str, Any]]


async def month(folder: Path, days: int, clock: SimulatedTime) -> list[Look]:
    """Crawl and look for some days; return the looks with changes."""
    simulation = Simulation(sites(), clock)
    file = folder / "sources.txt"
    file.write_text("\n".join(sources()))
    settings: dict[str, object] = {
        "WALSH_STATE_URL": f"sqlite:///{folder / 'walsh.sqlite3'}",
        "WALSH_SOURCES": str(file),
        "WALSH_BLOCKLIST_URL": LIST_URL,
        "WALSH_SERIAL": False,
        "WALSH_USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)",
        "WALSH_UA_TOKEN": "Example-Bot",
    }
    looks = []
    for hour in range(days * 24):
        clock.at = max(clock.at, hour * HOUR)
        if hour == REMOVED_AT:
            file.write_text("\n".join(url for url in sources() if url != REMOVED))
        if hour % 2 == 0 and not STOPPED[0] <= hour < STOPPED[1]:
            place = folder / f"run-{hour}"
            place.mkdir()
            await _crawl(simulation, settings, place, hour)
        with closing(State(str(settings["WALSH_STATE_URL"]), clock=clock.now)) as state:
            problems = [
                problem._asdict()
                for problem in problems_of(state.rows("problem_facts"))
                if problem.is_urgent
            ]
            changes = changed_since(state.reports.exchange("cron", problems), problems)
        if changes:
            looks.append(Look(hour / 24, changes))
    return looks


async def _crawl(
    simulation: Simulation, settings: dict[str, object], folder: Path, hour: int
) -> None:
    """Run the crawl of an hour."""
    own: dict[str, object] = {}
    if DISK_FULL[0] <= hour < DISK_FULL[1]:
        own["FEEDS"] = {"/dev/full": {"format": "jsonlines"}}
    ahead = 5 * HOUR if hour == CLOCK_AHEAD else 0.0
    simulation.clock.at += ahead
    await simulation.crawl("feeds", settings | own, {}, folder)
    simulation.clock.at -= ahead


def main(folder: str, days: str = "30") -> None:
    """Print the looks of a month."""
    looks = simulate_here(partial(month, Path(folder), int(days)))
    for look in looks:
        for row in look.changes:
            words = (row["change"], row["severity"], row["code"], row["subject"], row["problem"])
            print(f"{look.day:6.2f}", *words, sep="\t")
    print(f"{len(looks)} notices")


if __name__ == "__main__":
    main(*sys.argv[1:])
