"""The tables of ``scrapy demo``: what each host asks for, and what its log shows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.site import Site


def demo_table(sites: Iterable[Site], runs: Sequence[Sequence[Hit]]) -> Table:
    """Return a row for each host: what it asks for, and its requests in each run."""
    table = Table(title="What each server asked for, and what its log shows", title_justify="left")
    table.add_column("host", no_wrap=True)
    table.add_column("what it asks for", ratio=2)
    for number in range(1, len(runs) + 1):
        table.add_column(f"what the crawler did in run {number}", ratio=2)
    for site in sites:
        cells = (timeline([hit for hit in log if hit.host == site.host]) for log in runs)
        table.add_row(site.host, site.asks, *cells)
    return table


def timeline(hits: Sequence[Hit]) -> str:
    """Return the requests that a host got in a run on one line, with the pauses between them."""
    if not hits:
        return "no byte sent"
    ordered = sorted(hits, key=lambda hit: hit.started)
    parts = [_request(ordered[0])]
    for earlier, later in pairwise(ordered):
        parts += [f"{later.started - earlier.ended:.2f} s", _request(later)]
    return " · ".join(parts)


def entries_table(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    """Return a row for each source: how many new entries each run found, and one title."""
    table = Table(title="Entries found", title_justify="left")
    table.add_column("source", no_wrap=True)
    for number in range(1, len(runs) + 1):
        table.add_column(f"new in run {number}", justify="right")
    table.add_column("one of them")
    counts = [Counter(str(item["source"]) for item in items) for items in runs]
    for source in sorted({source for count in counts for source in count}):
        titles = [
            str(item["title"]) for items in runs for item in items if item["source"] == source
        ]
        table.add_row(source, *(str(count[source]) for count in counts), titles[0])
    return table


def _request(hit: Hit) -> str:
    what = "robots.txt" if hit.path == "/robots.txt" else hit.path
    return f"{what} {hit.status}"
