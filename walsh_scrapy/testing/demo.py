"""``walsh demo``: two crawls of a web on this machine, and a check of the servers' log."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import walsh_scrapy
from walsh_scrapy.feeds.sourcesummary import done_sources
from walsh_scrapy.identity import UA_TOKEN, USER_AGENT
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.testing.crawl import run_crawl
from walsh_scrapy.testing.demoweb import (
    BLOCKLIST_SCHEMA_URL,
    BLOCKLIST_URL,
    DEMO_TERMS,
    demo_table,
    demo_web,
    entries_table,
)
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import most_open
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.web import LoopbackWeb
from walsh_scrapy.tools.standalone import write_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.testing.crawl import CrawlResult
    from walsh_scrapy.testing.politeness import Terms
    from walsh_scrapy.testing.web import Web
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:  # noqa: ARG001 - every tool takes one
    """Run both crawls, print and check the servers' log, and return the exit status."""
    console = Console(width=None if Console().is_terminal else 140)
    sites, sources = demo_web()
    # Other systems have one loopback address only, so a proxy stands for all hosts there.
    web_class = DirectWeb if sys.platform == "linux" else LoopbackWeb
    with web_class(*sites) as web, tempfile.TemporaryDirectory() as folder:
        project = _project(Path(folder))
        runs = [_crawl(web, Path(folder), project, sources, number, console) for number in (1, 2)]
        observed: Terms = {"crawl_delays": web.crawl_delays, "connections": web.connections}
        terms: Terms = {**DEMO_TERMS, **observed}
        broken = violations(web.log, **terms)
    broken += [problem for run in runs for problem in _run_problems(run, len(sources))]
    console.print(demo_table(sites, [run.log for run in runs]))
    console.print(entries_table([run.items for run in runs]))
    for sentence in broken:
        console.print(f"[red]broken:[/] {sentence}")
    console.print(f"[bold]{'Rules were broken.' if broken else 'No rule was broken.'}[/]")
    return 1 if broken else 0


def _project(folder: Path) -> Path:
    """Return the project of this repository, or a new one from ``walsh init`` if installed."""
    clone = Path(walsh_scrapy.__file__).parents[1]
    if (clone / "scrapy.cfg").is_file():
        return clone
    project = folder / "project"
    write_project(project)
    return project


def _crawl(
    web: Web,
    folder: Path,
    project: Path,
    sources: Sequence[str],
    number: int,
    console: Console,
) -> CrawlResult:
    """Run the real `scrapy crawl feeds`; both runs share the state in ``folder``."""
    console.print(f"run {number} of 2: scrapy crawl feeds, {len(sources)} sources ...")
    result = run_crawl(
        web,
        folder=folder,
        project=project,
        sources=sources,
        settings={
            "WALSH_USER_AGENT": USER_AGENT,
            "WALSH_UA_TOKEN": UA_TOKEN,
            "WALSH_BLOCKLIST_URL": BLOCKLIST_URL,
            "WALSH_BLOCKLIST_SCHEMA_URL": BLOCKLIST_SCHEMA_URL,
        },
        # The second run follows at once, although the sources are due again only in a day.
        arguments={} if number == 1 else {"force": "1"},
    )
    console.print(
        f"  {count_of(len(result.log), 'request')} over "
        f"{count_of(len(result.connections), 'connection')}, at most "
        f"{most_open(result.connections)} open at once; "
        f"{count_of(len(result.items), 'new entry', 'new entries')}, {result.seconds:.0f} s"
    )
    return result


def _run_problems(run: CrawlResult, sources: int) -> list[str]:
    """Return what the log does not show: a run that failed, or sources without an outcome."""
    finished = done_sources(run.stats)
    problems = [f"a run ended with exit status {run.exit_code}"] if run.exit_code else []
    return problems + [f"{finished} of {sources} sources had an outcome"] * (finished != sources)
