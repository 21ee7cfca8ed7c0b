"""Plays and judges random days, one after the other.

    python -m tests.acceptance.seeds [--postgresql] [--shrink] FOLDER FIRST [COUNT]
    python -m tests.acceptance.seeds [--postgresql] FOLDER cases

A failure is printed with its seed, the days in words, what was judged, and the days as a case for
`tests.acceptance.cases`; with `--shrink` first without all that the failure does not need. The exit
status is 1 if any days failed. The folder gets the states of the days that failed.
"""

import argparse
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import create_engine, text

from tests.acceptance.cases import CASES
from tests.acceptance.judgedays import judge
from tests.acceptance.playdays import play, warm_up
from tests.acceptance.randomdays import Act, Crawl, Days, Host, Phases, describe, draw
from tests.helpers.renewed import RenewedDatabase, url_of
from walsh_scrapy.testing.crawl import copy_new_state

_Part = TypeVar("_Part")
#: Makes a new state for the days that are played in a folder, and returns its URL.
MakeState = Callable[[Path], str]


def new_file(folder: Path) -> str:
    """Return the URL of a new state in a file."""
    url = f"sqlite:///{folder}/walsh.sqlite3"
    copy_new_state(url)
    return url


@contextmanager
def postgresql() -> Iterator[MakeState]:
    """Give a function that renews one database on PostgreSQL, and returns its URL."""
    server = create_engine(url_of("test"), isolation_level="AUTOCOMMIT")
    name = f"walsh_{uuid.uuid4().hex}"
    with server.connect() as connection:

        def run(statement: str) -> None:
            connection.execute(text(statement))

        run(f"CREATE DATABASE {name}")
        try:
            database = RenewedDatabase(name, run)

            def make(_: Path) -> str:
                database.renew(is_empty=False)
                return database.url

            yield make
        finally:
            run(f"DROP DATABASE {name} WITH (FORCE)")
    server.dispose()


def faults_of(days: Days, folder: Path, make_state: MakeState) -> list[str]:
    """Play and judge some days; the folder stays if they fail."""
    folder.mkdir(parents=True)
    faults = judge(play(days, folder, make_state(folder)))
    if not faults:
        shutil.rmtree(folder)
    return faults


def shrink(days: Days, fails: Callable[[Days], bool]) -> Days:
    """Return the days without what their failure does not need."""
    while (smaller := next(filter(fails, _smaller(days)), None)) is not None:
        days = smaller
    return days


def _smaller(days: Days) -> Iterator[Days]:
    """Yield the days with one thing less."""
    for steps in _shorter(days.steps):
        yield replace(days, steps=steps)
    for host in days.hosts:
        others = tuple(other for other in days.hosts if other is not host)
        yield _without_lost_sources(replace(days, hosts=others))
    for place, step in enumerate(days.steps):
        for simpler in _simpler(step):
            yield replace(days, steps=_with(days.steps, place, simpler))
    for phases in _shorter_phases(days.blocklist):
        yield replace(days, blocklist=phases)
    for place, host in enumerate(days.hosts):
        for simpler_host in _simpler_hosts(host):
            yield replace(days, hosts=_with(days.hosts, place, simpler_host))


def _without_lost_sources(days: Days) -> Days:
    names = {host.name for host in days.hosts}
    steps = []
    for step in days.steps:
        if isinstance(step, Crawl):
            sources = tuple(url for url in step.sources if url.split("/")[2] in names)
            steps += [replace(step, sources=sources)] if sources else []
        else:
            steps.append(step)
    return replace(days, steps=tuple(steps))


def _simpler(step: Crawl | Act) -> Iterator[Crawl | Act]:
    if step.ahead:
        yield replace(step, ahead=0.0)
    if isinstance(step, Act):
        return
    for sources in _shorter(step.sources):
        yield replace(step, sources=sources)
    for workers in _shorter(step.workers):
        yield replace(step, workers=workers)
    for place, worker in enumerate(step.workers):
        if worker.kill:
            quiet = replace(worker, kill=None)
            yield replace(step, workers=_with(step.workers, place, quiet))
    if step.force:
        yield replace(step, force=False)


def _simpler_hosts(host: Host) -> Iterator[Host]:
    for robots in _shorter_phases(host.robots):
        yield replace(host, robots=robots)
    for place, (path, phases) in enumerate(host.pages):
        for fewer in _shorter_phases(phases):
            yield replace(host, pages=_with(host.pages, place, (path, fewer)))


def _shorter_phases(phases: Phases) -> Iterator[Phases]:
    for fewer in _shorter(phases):
        yield (replace(fewer[0], since=0.0), *fewer[1:])


def _shorter(parts: tuple[_Part, ...]) -> Iterator[tuple[_Part, ...]]:
    """Yield the parts without one of them, but never without any."""
    for place in range(len(parts) if len(parts) > 1 else 0):
        yield parts[:place] + parts[place + 1 :]


def _with(parts: tuple[_Part, ...], place: int, part: _Part) -> tuple[_Part, ...]:
    return (*parts[:place], part, *parts[place + 1 :])


def report(name: str, days: Days, faults: list[str]) -> str:
    """Return a failure as text."""
    lines = [f"== {name} ==", *describe(days), "", *(f"- {fault}" for fault in faults)]
    return "\n".join([*lines, "", written(days), ""])


def written(value: object) -> str:
    """Return the source of a case, without the fields that have their defaults."""
    if isinstance(value, tuple):
        return f"({''.join(f'{written(part)}, ' for part in value)})"
    if not is_dataclass(value):
        return repr(value)
    given = [
        f"{field.name}={written(getattr(value, field.name))}"
        for field in fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def main(words: list[str]) -> int:
    """Play what the words say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.seeds")
    parser.add_argument("--postgresql", action="store_true", help="on PostgreSQL")
    parser.add_argument("--shrink", action="store_true", help="make failures small")
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", help="the first seed, or `cases`")
    parser.add_argument("count", type=int, nargs="?", default=1)
    options = parser.parse_args(words)
    if options.first == "cases":
        played = [(f"case {name}", days) for name, days in CASES.items()]
    else:
        seeds = range(int(options.first), int(options.first) + options.count)
        played = [(f"seed {seed}", draw(seed)) for seed in seeds]
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=options.folder.resolve()))
    warm_up(folder, draw(0))
    failed = 0
    with ExitStack() as stack:
        make = stack.enter_context(postgresql()) if options.postgresql else new_file
        for name, days in played:
            faults = faults_of(days, folder / name.replace(" ", "-"), make)
            if not faults:
                continue
            failed += 1
            print(report(name, days, faults), flush=True)
            if options.shrink:
                small = shrink(days, partial(_fails_so, faults[0], folder, make))
                faults = faults_of(small, folder / uuid.uuid4().hex, make)
                print(report(f"{name}, made small", small, faults), flush=True)
    print(f"{failed} of {len(played)} failed")
    return min(failed, 1)


def _fails_so(fault: str, folder: Path, make_state: MakeState, days: Days) -> bool:
    """Return True if days break the rule of this fault too."""
    place = folder / uuid.uuid4().hex
    found = faults_of(days, place, make_state)
    shutil.rmtree(place, ignore_errors=True)
    rule = fault.partition(":")[0]
    return any(one.startswith(f"{rule}:") for one in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
