"""The public judges, each called as anybody would call it, with a mutant as the crawler.

The demo and the conformance test judge by the log of servers. `scrapy attest` judges the record
that the mutant has written of itself, by the mutant's own installation.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.mutants.mutant import ROOT
from benchmarks.mutants.web import LIST_URL, PAGE_STARTS, PAGES, SOURCES, STARTS, sites
from walsh_scrapy.testing.crawl import start_crawl
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.reply import Reply
from walsh_scrapy.testing.simulation import simulate
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.web import LoopbackWeb

_TRACEBACK: Final = "Traceback (most recent call last)"
#: Calls a command in another folder, whose package it imports: folder, then the command.
_INSIDE: Final = ("sh", "-c", 'cd "$0" && PYTHONPATH="$0" exec "$@"')
#: Sources of each host that two processes crawl at once, and seconds that this takes at most.
_SHARED, _LONGEST = 8, 120.0
#: Characters of what a mutant says as it crashes.
_WIDEST: Final = 100


class Crashed(Exception):
    """The mutant does not work. The message says why."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge says of a mutant; nothing if the mutant crashed."""

    breaches: tuple[str, ...] = ()  #: each in a word
    crash: str = ""  #: how the mutant ended

    def __str__(self) -> str:
        return f"crashed: {self.crash}" if self.crash else ", ".join(self.breaches) or "-"


def judge(name: str, project: Path, folder: Path) -> Opinion:
    """Ask the judge of this name about the mutant in `project`; `folder` is for its records."""
    try:
        return Opinion(JUDGES[name](project, folder))
    except Crashed as error:
        return Opinion(crash=str(error))


def demo(project: Path, _: Path) -> tuple[str, ...]:
    """Run `scrapy demo` of the mutant: its judge is that of this tree."""
    done = _run(project, "-m", "scrapy", "demo")
    broken = [line for line in done.stdout.splitlines() if line.startswith("broken: ")]
    if done.returncode == 0:
        return ()
    if not broken or any("exit status" in line for line in broken):
        raise Crashed(_tail(done.stdout + done.stderr))
    return (f"{len(broken)} broken",)


def conformance(project: Path, _: Path) -> tuple[str, ...]:
    """Try the mutant's crawls, by the trial of this tree."""
    return _trial(project)


def proxy(project: Path, _: Path) -> tuple[str, ...]:
    """Try them behind the proxy, where hosts have subdomains."""
    return _trial(project, "--proxy")


def _trial(project: Path, *options: str) -> tuple[str, ...]:
    command = [*_INSIDE, str(project), sys.executable, "-m", "walsh_scrapy.tools.attest.owncrawl"]
    trial = ("-m", "walsh_scrapy.testing.conformance", "--json", *options, "--", *command)
    done = _run(ROOT, *trial)
    try:
        card = json.loads(done.stdout)
    except ValueError:
        raise Crashed(_tail(done.stderr)) from None
    failed = [each for each in card["results"] if each["verdict"] == "fail" or _leaves_out(each)]
    breaches = [_named(each["scenario"], each["level"]) for each in failed]
    if not card["conformant"] and not any(each["level"] == "MUST" for each in failed):
        breaches.append("not conformant")
    return tuple(breaches)


def _leaves_out(result: dict[str, Any]) -> bool:
    """Return whether the mutant failed what a crawler MAY do; the crawler as it is does it."""
    is_left_out: bool = result["reason"].startswith("a crawler may leave this out")
    return result["level"] == "MAY" and is_left_out


def attest(project: Path, folder: Path) -> tuple[str, ...]:
    """Let the mutant audit its own records: of simulated days, and of two processes at once.

    A row of which the days show nothing counts as found, as the crawler as it is shows each row.
    """
    days, processes = folder / "days", folder / "processes"
    _simulated_days(project, days)
    _two_processes(project, processes)
    found = [*_rows(project, days, unshown=True), *_rows(project, processes, unshown=False)]
    return tuple(dict.fromkeys(found))


JUDGES: Final[dict[str, Callable[[Path, Path], tuple[str, ...]]]] = {
    "attest": attest,
    "demo": demo,
    "conformance": conformance,
    "proxy": proxy,
}


def _simulated_days(project: Path, folder: Path) -> None:
    settings = {"WALSH_BLOCKLIST_URL": LIST_URL}
    runs: list[dict[str, Any]] = [
        {"starts": STARTS, "sources": SOURCES},
        {"starts": PAGE_STARTS, "sources": PAGES, "spider": "llms"},
    ]
    for run in runs:
        try:
            results = simulate(*sites(), folder=folder, settings=settings, project=project, **run)
        except RuntimeError as error:
            raise Crashed(_tail(str(error))) from error
        for result in results:
            if _TRACEBACK in result.stderr:
                raise Crashed(_tail(result.stderr[result.stderr.index(_TRACEBACK) :]))


def _two_processes(project: Path, folder: Path) -> None:
    """Crawl two hosts by two processes that share the state."""
    hosts, numbers = ("one.example", "two.example"), range(_SHARED)
    shared = [
        Site(host, "", {f"/{n}": Reply(rss(host, [f"{n}"], f"http://{host}/{n}")) for n in numbers})
        for host in hosts
    ]
    sources = [f"http://{host}/{n}" for host in hosts for n in numbers]
    with LoopbackWeb(*shared) as web:
        crawls = [
            start_crawl(web, folder=folder, sources=sources, project=project) for _ in range(2)
        ]
        try:
            results = [crawl.wait(_LONGEST) for crawl in crawls]
        except (RuntimeError, TimeoutError) as error:
            raise Crashed(_tail(str(error))) from error
        finally:
            for crawl in crawls:
                crawl.kill()
    for result in results:
        if result.exit_code or _TRACEBACK in result.stderr:
            raise Crashed(_tail(result.stderr))


def _rows(project: Path, folder: Path, *, unshown: bool) -> Iterator[str]:
    """Yield the rows that do not hold; with ``unshown`` those as well that are not shown."""
    state = f"WALSH_STATE_URL=sqlite:///{folder.resolve()}/walsh.sqlite3"
    done = _run(project, "-m", "scrapy", "attest", "--json", "-s", state)
    try:
        rows = json.loads(done.stdout)["checklist"]
    except (ValueError, KeyError):
        raise Crashed(_tail(done.stderr)) from None
    for row in rows:
        for finding in row["findings"]:
            yield f"{row['row']} {_named(finding['kind'], finding['level'])}"
        if (
            not row["findings"]
            and row["verdict"] != "holds"
            and (unshown or row["verdict"] == "does not hold")
        ):
            yield f"{row['row']} {row['verdict']}"


def _named(name: str, level: str) -> str:
    return name if level == "MUST" else f"{name} ({level})"


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def _tail(text: str) -> str:
    """Return the last line of a text that says anything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_WIDEST] if lines else "no word"
