"""A visit has 60 s on the wire; a host that takes more than 60 s is deferred (decision 46).

Real crawls in simulated time.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.helpers.sites import IDENTITY, feed, feeds, log_lines, rows_of, site
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Reply, Site, redirect

#: Seconds of an answer just within the time limit of 30 s, with the latency of the simulation.
SLOW = 29.0
DELAY = SLOW - 0.1
OTHERS = [f"other{number}" for number in range(10)]
PATHS = [f"f{number}" for number in range(20)]


def slow_host(name="slow.example", paths=PATHS, *, delay=DELAY, robots=""):
    page = feed(host=name.partition(":")[0], delay=delay)
    return Site(name, robots, {f"/{path}": page for path in paths})


def urls_of(host, paths=PATHS):
    return [f"http://{host}/{path}" for path in paths]


def chain(length=5, *, robots=Reply("", delay=DELAY)):
    """Hosts of which each one redirects to the next, and the last one has the feed."""
    targets = [f"http://hop{number}.example/feed" for number in range(1, length + 1)]
    hops = [replace(redirect(target, 302), delay=DELAY) for target in targets]
    pages = [*hops, feed(delay=DELAY)]
    return [
        Site(f"hop{number}.example", robots, {"/feed": page}) for number, page in enumerate(pages)
    ]


def seconds_of(log):
    return sum(hit.ended - hit.started for hit in log)


def outcomes(run):
    names = ("fetched", "unchanged", "failed", "deferred")
    counts = {name: run.stats.get(f"walsh/sources/{name}", 0) for name in names}
    return {name: count for name, count in counts.items() if count}


@pytest.fixture(scope="module")
def trial(tmp_path_factory, simulate_once):
    """A slow host with 20 sources, a slow chain over six hosts, and ten other hosts."""
    return simulate_once(
        slow_host(),
        *chain(5),
        *(site(f"{name}.example") for name in OTHERS),
        sources=[*urls_of("slow.example"), "http://hop0.example/feed", *feeds(*OTHERS)],
        starts=[0.0, DAY + 3600.0],
    )
